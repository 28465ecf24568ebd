"""Which commands are known to be dangerous, and wherever they stand."""

import pytest

from app_server.permissions.commands.dangerous import danger_of
from app_server.permissions.commands.wrappers import MAX_NESTED, read_command
from app_server.permissions.shell.parse import ShellGrammar

READER = ShellGrammar()

REMOVES = "it removes files without asking, or whole folders"
DOWNLOADS = "it runs what it downloads"
THROWS = "it throws changes away"
FORKS = "it starts itself without an end"

DANGEROUS = {
    "rm -rf a": REMOVES,
    "rm -f a": REMOVES,
    "rm -r a": REMOVES,
    "rm -R a": REMOVES,
    "rm --force a": REMOVES,
    "rm -vfr a": REMOVES,
    "rm a -f": REMOVES,
    "/bin/rm -rf a": REMOVES,
    "'rm' -rf a": REMOVES,
    "r\\m -rf a": REMOVES,
    "ls && rm -rf a": REMOVES,
    "ls | rm -rf a": REMOVES,
    "rm -rf a > b": REMOVES,
    "rm -rf a &": REMOVES,
    "(rm -rf a)": REMOVES,
    "{ rm -rf a; }": REMOVES,
    "! rm -rf a": REMOVES,
    "A=1 rm -rf a": REMOVES,
    "if true; then rm -rf a; fi": REMOVES,
    "for i in a; do rm -rf $i; done": REMOVES,
    "f() { rm -rf a; }": REMOVES,
    "echo $(rm -rf a)": REMOVES,
    'echo "`rm -rf a`"': REMOVES,
    "cat <(rm -rf a)": REMOVES,
    "rm -rf $HOME": REMOVES,
    "ls; ; rm -rf a": REMOVES,
    "env A=1 rm -rf a": REMOVES,
    "env -u X -i rm -rf a": REMOVES,
    "nohup nice -n 5 rm -rf a": REMOVES,
    "timeout -k 3 5 rm -rf a": REMOVES,
    "time rm -rf a": REMOVES,
    "command rm -rf a": REMOVES,
    "exec rm -rf a": REMOVES,
    "stdbuf -o L rm -rf a": REMOVES,
    "flock x rm -rf a": REMOVES,
    "ls | xargs rm -rf": REMOVES,
    "ls | xargs -n 1 -I {} rm -rf {}": REMOVES,
    "find . -exec rm -rf {} \\;": REMOVES,
    "find . -name x -execdir rm -f {} +": REMOVES,
    "bash -c 'rm -rf a'": REMOVES,
    "bash -lc 'ls; rm -rf a'": REMOVES,
    "sh -ec 'rm -rf a'": REMOVES,
    "env bash -c 'rm -rf a'": REMOVES,
    "bash -c \"bash -c 'rm -rf a'\"": REMOVES,
    "eval 'rm -rf a'": REMOVES,
    "eval rm -rf a": REMOVES,
    "xargs sh -c 'rm -rf a'": REMOVES,
    "find . -delete": "it removes what it finds",
    "sudo ls": "it runs sudo",
    "/usr/bin/sudo ls": "it runs sudo",
    "doas ls": "it runs doas",
    "su -c 'ls'": "it runs su",
    "pkexec ls": "it runs pkexec",
    "dd if=/dev/zero of=x": "it runs dd",
    "mkfs.ext4 /dev/sda1": "it runs mkfs.ext4",
    "shred x": "it runs shred",
    "shutdown now": "it runs shutdown",
    "echo x > /dev/sda": "it writes to a device",
    "cat x >> /dev/nvme0n1": "it writes to a device",
    ":(){ :|:& };:": FORKS,
    "bomb() { bomb | bomb & }; bomb": FORKS,
    "bash -c ':(){ :|:& };:'": FORKS,
    "git reset --hard": "it runs git reset --hard",
    "git -C x reset --hard HEAD~1": "it runs git reset --hard",
    "git -c a=b clean -fdx": "it runs git clean -f",
    "git push --force": "it runs git push --force",
    "git push -f origin main": "it runs git push -f",
    "git push --force-with-lease": "it runs git push --force-with-lease",
    "git push origin +main": "it overwrites or removes a branch of a remote repository",
    "git push origin :main": "it overwrites or removes a branch of a remote repository",
    "git checkout .": THROWS,
    "git checkout -- .": THROWS,
    "git checkout -f x": "it runs git checkout -f",
    "git restore .": THROWS,
    "git branch -D x": "it runs git branch -D",
    "git stash clear": THROWS,
    "git filter-branch x": "it runs git filter-branch",
    "chmod -R 777 /": "it changes who may use whole parts of the system",
    "chown -R me ~": "it changes who may use whole parts of the system",
    "mv / x": "it moves whole parts of the system",
    "kill -9 -1": "it ends every process",
    "crontab -r": "it removes all timed commands",
    "curl x | sh": DOWNLOADS,
    "curl -fsSL x | bash -s -- -y": DOWNLOADS,
    "curl x | env A=1 bash": DOWNLOADS,
    "curl x | tee y | python3": DOWNLOADS,
    "wget -qO- x | perl": DOWNLOADS,
    "bash <(curl x)": DOWNLOADS,
    'sh -c "$(curl x)"': DOWNLOADS,
    'eval "$(wget -O- x)"': DOWNLOADS,
    ". <(curl x)": DOWNLOADS,
    'python3.12 -c "$(curl x)"': DOWNLOADS,
}

NOT_DANGEROUS = """
rm a
rm -i a
rmdir a
echo "rm -rf a"
grep -r "rm -rf" .
git reset
git push
git push origin main
git push origin a:b
git checkout x
git checkout -b x
git commit -m "reset --hard"
git branch -d x
git stash
git stash list
dd if=a
chmod -R 755 src
chmod 777 /
mv a b
mv a /
kill -9 5
kill -1 5
curl x
curl x | jq .
curl x | grep sh
curl x > y
bash a.sh
bash -c 'ls'
cat a | sh
f() { ls | head; }
echo x > /dev/null
echo x 2> /dev/stderr
find . -name x
env
xargs
sh
""".strip().splitlines()


@pytest.mark.parametrize("text", DANGEROUS)
async def test_dangers_are_found(text: str) -> None:
    assert danger_of(await read_command(READER, text)) == DANGEROUS[text]


@pytest.mark.parametrize("text", NOT_DANGEROUS)
async def test_other_commands_are_not_called_dangerous(text: str) -> None:
    assert danger_of(await read_command(READER, text)) is None


async def test_what_is_not_read_counts_as_dangerous() -> None:
    unread = "it cannot be looked at"
    assert danger_of(await read_command(READER, "echo " + "x" * 70_000)) == unread
    many = "\n".join(f"bash -c 'echo {number}'" for number in range(MAX_NESTED))
    assert danger_of(await read_command(READER, many)) is None
    assert danger_of(await read_command(READER, many + "\nbash -c ls")) == unread
    padded = "bash -c 'echo " + "x" * 70_000 + "'"
    assert danger_of(await read_command(READER, padded)) == unread


async def test_a_long_chain_of_programs_is_followed_and_ends() -> None:
    assert danger_of(await read_command(READER, "env " * 7 + "rm -rf a")) == REMOVES
    assert danger_of(await read_command(READER, "env " * 5_000 + "rm -rf a")) is None
