"""Which commands are known to read only."""

import pytest

from app_server.permissions.commands.safe import not_reading
from app_server.permissions.shell.grammar import ShellGrammar
from app_server.permissions.shell.parse import ScriptReader

READER = ScriptReader(ShellGrammar())

SAFE = """
cat a.txt
ls -la
ls *
ls ~/x
/bin/ls
/usr/bin/cat a
cat a | head -3 | wc -l
cd src && ls
pwd; true
echo "rm -rf x"
grep -rn foo .
rg foo src
rg --files -g '*.py'
find . -name x -type f
find src -maxdepth 2
fd foo
git status
git --no-pager diff
git log --oneline -5
git diff HEAD~1 -- src
git show HEAD:a.txt
git branch
git branch -a
git branch --show-current
git remote -v
git stash list
git rev-parse --show-toplevel
git ls-files
git grep foo
git blame a
sed -n 5p a
sed -n 1,5p a b
sed -n -e 1,5p a
sort src/*
sort -u a
uniq -c
uniq -f 1 a
date
date +%s
date -u
command -v ls
which ls
jq . a
base64 a
tree -L 2
diff a b
printf hi
printf -- -v
file a
""".strip().splitlines()

NOT_SAFE = r"""
rm a
touch a
mkdir a
make
npm test
python3 a.py
ls > x
ls 2>/dev/null
cat $(ls)
FOO=1 ls
./ls
bin/ls
/tmp/ls
~/bin/ls
*/ls
ls && rm a
ls | tee x
ls | xargs cat
env ls
sudo ls
time ls
find . -exec ls {} \;
find . -execdir ls {} \;
find . -ok ls {} \;
find . -delete
find . -fprint x
find . -fprintf x y
find . -fls x
find *
find [a-z]*
fd -x rm
fd foo -X rm
fd --exec=rm
fd --exec-batch rm
rg --pre cat foo
rg --pre=cat foo
rg --hostname-bin x foo
rg -z foo
rg --search-zip foo
rg foo *
git -c core.pager=x log
git -C other status
git --git-dir=x log
git --exec-path=x log
git -p log
git log --output=x
git log --outp x
git diff --output x
git diff --ext-diff
git diff --textconv
git show --ext-diff
git grep -O foo
git grep -Oless foo
git grep --open-files-in-pager foo
git branch new
git branch -d x
git branch -D x
git branch -m a b
git checkout x
git commit -m x
git push
git remote add x y
git remote -v update
git stash
git tag x
git config x y
git status *
git frobnicate
git
cd x && git status
cd x; git diff
sed s/a/b/ a
sed -i s/a/b/ a
sed -n '1,5p;w x' a
sed -n 1e a
sed -n '1,5p' -i a
sed -n -e 1p -e 'w x' a
sed --expression=1p a
sed -n /x/p a
sort -o x y
sort -ro x y
sort -uox y
sort --output=x y
sort --outp=x y
sort --compress-program=x y
sort *
sort ?x
uniq a b
tree -o x
date -s x
date --set=x
date x
command ls
command -p rm
printf -v a x
printf -v 'a[$(id)]' x
base64 -o x y
file -C -m x
file -z x
test -v 'a[$(id)]'
[ -f x ]
read x
export
alias ls=rm
source x
. x
exec ls
eval ls
awk 1 a
tee
less a
vim a
wget x
curl x
""".strip().splitlines()


async def only_reads(text: str) -> bool:
    script = await READER.read(text)
    return script.is_understood and not not_reading(script)


@pytest.mark.parametrize("text", SAFE)
async def test_reads_are_known(text: str) -> None:
    assert await only_reads(text)


@pytest.mark.parametrize("text", NOT_SAFE)
async def test_whatever_may_do_more_is_not_a_read(text: str) -> None:
    assert not await only_reads(text)


async def test_a_script_without_commands_reads_nothing() -> None:
    assert not await only_reads("")
