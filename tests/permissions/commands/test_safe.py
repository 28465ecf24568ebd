"""Which commands are known to read only."""

import pytest

from app_server.permissions.commands.safe import not_reading
from app_server.permissions.shell.parse import ShellGrammar

READER = ShellGrammar()

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
printf '%s|' 'psvar[$(id)]'
printf '%-5s %b%%' a b
file a
cat *
grep -rn foo --include=*.py .
grep -e -foo a
cut -d - -f 1 a
head -n -5 a
tail -20 a
rg -e foo -- --pre=x
rg -nC3 foo
rg foo -- *
sort -k2,2n -t , a
sort -nrk 2 a
uniq -cd a
git grep -nC3 foo
git log -5 --format='%h %s' -S foo -- src
git log -U5 -p
git show HEAD^
git stash list
git diff --no-index a b
git for-each-ref --format='%(refname)'
find . -mtime -7 -size +5k ! -perm -u+x -printf '%p'
find . -name a*
tree -aL 2 -I node_modules
diff -ru a b
column -ts , a
jq -r --arg a b '.x' a.json
""".strip().splitlines()

NOT_SAFE = r"""
rm a
touch a
mkdir a
make
rg -e -- --pre=./evil .
rg -e -- foo
rg -g * -- --pre=x
rg --pr=./evil foo
rg -nz foo
rg -znfoo
rg --pre* foo
sort --random-source -- -o OUT in
sort -k -- -o OUT
sort -k1 -oOUT in
sort -t-o OUT -oOUT
sort --debug=x a
sort --random a
tree -P -- -o OUT
tree -Lo 1 OUT
tree -PIo a b OUT
tree -Po
tree --sort
tree --sort -- -o OUT
tree -P ^x
uniq ./[ab]
uniq a*
uniq *
uniq ^x
uniq {ab}
uniq -f [12] a
uniq a -f 1
uniq -- a b
uniq -cf
diff -D X a b
fd -l
fd --list-details
file -bz x
file -bCm x
git diff --no-index -S -- --output=OUT a b
git diff -S --output=OUT
git diff -O./evil
git grep -nO./evil needle
git grep -nO needle
git grep -e -- -O./evil
git grep --open needle
git log --format=%G?
git log --format='%h %-GG'
git log --pretty='%+GS'
git log --show-signature
git log --remerge-diff
git log --diff-merges=remerge
git for-each-ref --format='%(signature)'
git for-each-ref --sort=signature
git describe --dirty
git describe --broken
git grep --recurse-submodules foo
git diff --submodule=diff
git log --help
git branch [x]
git tag -l x -d
find . -name -delete
find . -name -- -delete
find . -fprin x
find . -D exec
find . ^x
find . -name {-}delete
sed -n 5p ^x
date -I -s x
date +%s*
date -f x
date -r x
printf '%d' 'psvar[$(touch PWN)]'
printf '%i%s' 1 2
printf '%*s' 'a[$(id)]' x
printf '%.*s' 'a[$(id)]' x
printf '%s%x' a 'a[$(id)]'
printf %d x
printf *
printf -- *
printf ./* 'psvar[$(touch PWN)]'
printf ~+ 'psvar[$(touch PWN)]'
printf -- ~+ 'psvar[$(touch PWN)]'
printf a^b x
printf -x
cat --output=x
ls --frobnicate
which -x
cd -x
column --output=x
command -v *
command -v a b
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
    return script.is_understood and not not_reading(script, is_trusted=True)


@pytest.mark.parametrize("text", SAFE)
async def test_reads_are_known(text: str) -> None:
    assert await only_reads(text)


@pytest.mark.parametrize("text", NOT_SAFE)
async def test_whatever_may_do_more_is_not_a_read(text: str) -> None:
    assert not await only_reads(text)


async def test_a_script_without_commands_reads_nothing() -> None:
    assert not await only_reads("")
