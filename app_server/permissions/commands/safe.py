"""Commands that are known to read only, with options that are known to be harmless. No I/O.

What is not in this table is not known to be harmful, but does not run unasked either where a policy
asks for all but reads.
Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TypeAlias

from app_server.permissions.shell.options import known_operands, known_options, option_names
from app_server.permissions.shell.readers import LINES
from app_server.permissions.shell.script import Command, Script, Word

_SUMS = """
    -bctwz --binary --check --ignore-missing --quiet --status --strict --tag --text --warn --zero
"""

_GREP = """
    -EFGHILPRTUVZabchilnoqrsvwxyz -ABCDdefm= -# --after-context= --basic-regexp --before-context=
    --binary --binary-files= --byte-offset --color? --colour? --context= --count
    --dereference-recursive --devices= --directories= --exclude= --exclude-dir= --exclude-from=
    --extended-regexp --file= --files-with-matches --files-without-match --fixed-strings
    --group-separator= --ignore-case --include= --initial-tab --invert-match --label=
    --line-buffered --line-number --line-regexp --max-count= --no-filename --no-group-separator
    --no-ignore-case --no-messages --null --null-data --only-matching --perl-regexp --quiet
    --recursive --regexp= --silent --text --with-filename --word-regexp
"""

HARMLESS: Mapping[str, str] = {
    "basename": "-az -s= --multiple --suffix= --zero",
    "cat": """
        -AETbelnstuv --number --number-nonblank --show-all --show-ends --show-nonprinting
        --show-tabs --squeeze-blank
    """,
    "cd": "-LPe",
    "cksum": "-cwz -a= -l= --algorithm= --base64 --check --length= --raw --untagged " + _SUMS,
    "cmp": "-bls -in= --bytes= --ignore-initial= --print-bytes --quiet --silent --verbose",
    "column": """
        -JLdentx -HNORTWcilopRrs= --fillrows --json --output-separator= --output-width=
        --separator= --table --table-columns= --table-hide= --table-noheadings --table-order=
        --table-right= --table-truncate= --table-wrap=
    """,
    "comm": "-123z --check-order --nocheck-order --output-delimiter= --total --zero-terminated",
    "cut": """
        -nsz -bcdf= --bytes= --characters= --complement --delimiter= --fields= --only-delimited
        --output-delimiter= --zero-terminated
    """,
    "df": """
        -HPTahiklmv -Btx= --all --block-size= --exclude-type= --human-readable --inodes --local
        --no-sync --output? --portability --print-type --si --total --type=
    """,
    "dirname": "-z --zero",
    "du": """
        -0DHLPSabchklmsx -BXdt= --all --apparent-size --block-size= --bytes --count-links
        --dereference --dereference-args --exclude= --exclude-from= --files0-from= --human-readable
        --inodes --max-depth= --no-dereference --null --one-file-system --separate-dirs --si
        --summarize --threshold= --time? --time-style= --total
    """,
    "egrep": _GREP,
    "fgrep": _GREP,
    "free": """
        -bghklmtvw -cs= --bytes --committed --count= --gibi --giga --human --kibi --kilo --lohi
        --mebi --mega --seconds= --si --total --wide
    """,
    "grep": _GREP,
    "head": "-qvz -cn= -# --bytes= --lines= --quiet --silent --verbose --zero-terminated",
    "hexdump": """
        -Cbcdovx -efns= --canonical --format= --format-file= --length= --no-squeezing
        --one-byte-char --one-byte-octal --skip= --two-bytes-decimal --two-bytes-hex
        --two-bytes-octal
    """,
    "id": "-GZagnruz --context --group --groups --name --real --user --zero",
    "jq": """
        -CMRSacejnrs -fL= --arg --argfile --argjson --args --ascii-output --color-output
        --compact-output --exit-status --from-file= --indent= --join-output --jsonargs
        --monochrome-output --null-input --raw-input --raw-output --raw-output0 --rawfile --seq
        --slurp --slurpfile --sort-keys --stream --stream-errors --tab --unbuffered
    """,
    "ls": """
        -1ABCFGHLNQRSUXZabcdfghiklmnopqrstuvx -ITw= --all --almost-all --author --block-size=
        --classify? --color? --context --dereference --dereference-command-line
        --dereference-command-line-symlink-to-dir --directory --dired --escape --file-type
        --format= --full-time --group-directories-first --hide= --hide-control-chars
        --human-readable --hyperlink? --ignore= --ignore-backups --indicator-style= --inode
        --kibibytes --literal --no-group --numeric-uid-gid --quote-name --quoting-style=
        --recursive --reverse --show-control-chars --si --size --sort= --tabsize= --time=
        --time-style= --width= --zero
    """,
    "md5sum": _SUMS,
    "nl": """
        -p -bdfhilnsvw= --body-numbering= --footer-numbering= --header-numbering=
        --join-blank-lines= --line-increment= --no-renumber --number-format= --number-separator=
        --number-width= --section-delimiter= --starting-line-number=
    """,
    "od": """
        -abcdfilosvx -AjNSt= -w? --address-radix= --endian= --format= --output-duplicates
        --read-bytes= --skip-bytes= --strings? --traditional --width?
    """,
    "paste": "-sz -d= --delimiters= --serial --zero-terminated",
    "ps": """
        -AFHLMNPTZacdefjlmwxy -CGOUgnopqstu= --Group= --User= --cols= --columns= --context
        --deselect --forest --format= --group= --headers --lines= --no-headers --no-heading
        --no-headings --pid= --ppid= --quick-pid= --rows= --sid= --sort= --tty= --user= --width=
    """,
    "pwd": "-LP --logical --physical",
    "readlink": """
        -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline
        --quiet --silent --verbose --zero
    """,
    "realpath": """
        -LPemqsz --canonicalize-existing --canonicalize-missing --logical --no-symlinks --physical
        --quiet --relative-base= --relative-to= --strip --zero
    """,
    "rev": "",
    "seq": "-w -fs= -# --equal-width --format= --separator=",
    "sha1sum": _SUMS,
    "sha256sum": _SUMS,
    "sha512sum": _SUMS,
    "stat": "-Lft -c= --cached= --dereference --file-system --format= --printf= --terse",
    "tac": "-br -s= --before --regex --separator=",
    "tail": """
        -Ffqvz -cns= -# --bytes= --follow? --lines= --max-unchanged-stats= --pid= --quiet --retry
        --silent --sleep-interval= --verbose --zero-terminated
    """,
    "tr": "-Ccdst --complement --delete --squeeze-repeats --truncate-set1",
    "tty": "-s --quiet --silent",
    "type": "-Pafpt",
    "uname": """
        -aimnoprsv --all --hardware-platform --kernel-name --kernel-release --kernel-version
        --machine --nodename --operating-system --processor
    """,
    "uptime": "-ps --pretty --since",
    "wc": "-Lclmw --bytes --chars --files0-from= --lines --max-line-length --total= --words",
    "which": "-a --all",
    "whoami": "",
}
"""Programs none of whose options does harm: a pattern may become any of them."""

_FD = """
    -01FHILagipqsu -CESTcdejot= --absolute-path --and= --base-directory= --batch-size=
    --case-sensitive --changed-after= --changed-before= --changed-within= --color= --exact-depth=
    --exclude= --extension= --fixed-strings --follow --format= --full-path --glob --hidden
    --ignore-case --ignore-file= --max-depth= --max-results= --min-depth= --newer= --no-follow
    --no-hidden --no-ignore --no-ignore-parent --no-ignore-vcs --no-require-git --older=
    --one-file-system --owner= --path-separator= --print0 --prune --quiet --regex --search-path=
    --show-errors --size= --strip-cwd-prefix? --threads= --type= --unrestricted
"""

CHECKED: Mapping[str, str] = {
    "base64": "-Dd -w= --decode --wrap=",
    "date": "-Ru -I? --iso-8601? --rfc-3339? --rfc-email --universal --utc",
    "diff": """
        -BENTZabcdeinpqrstuwy -CFILSUWXx= --brief --color? --context? --ed --exclude=
        --exclude-from= --expand-tabs --from-file= --horizon-lines= --ignore-all-space
        --ignore-blank-lines --ignore-case --ignore-file-name-case --ignore-matching-lines=
        --ignore-space-change --ignore-tab-expansion --ignore-trailing-space --initial-tab --label=
        --left-column --minimal --new-file --no-dereference --no-ignore-file-name-case --normal
        --palette= --rcs --recursive --report-identical-files --show-c-function
        --show-function-line= --side-by-side --speed-large-files --starting-file=
        --strip-trailing-cr --suppress-blank-empty --suppress-common-lines --tabsize= --text
        --to-file= --unidirectional-new-file --unified? --width=
    """,
    "fd": _FD,
    "fdfind": _FD,
    "file": """
        -0ILNbhiknr -Fef= --apple --brief --dereference --exclude= --exclude-quiet= --extension
        --files-from= --keep-going --mime --mime-encoding --mime-type --no-buffer --no-dereference
        --no-pad --print0 --raw --separator=
    """,
    "rg": """
        -.0FHILNPSUVabchilnopqsuvwx -ABCEMTdefgjmrt= --after-context= --auto-hybrid-regex
        --before-context= --binary --block-buffered --byte-offset --case-sensitive --color=
        --colors= --column --context= --context-separator= --count --count-matches --crlf --debug
        --dfa-size-limit= --encoding= --engine= --field-context-separator= --field-match-separator=
        --file= --files --files-with-matches --files-without-match --fixed-strings --follow --glob=
        --glob-case-insensitive --heading --hidden --iglob= --ignore-case --ignore-file=
        --ignore-file-case-insensitive --include-zero --invert-match --json --line-buffered
        --line-number --line-regexp --max-columns= --max-columns-preview --max-count= --max-depth=
        --max-filesize= --mmap --multiline --multiline-dotall --no-config --no-filename
        --no-heading --no-ignore --no-ignore-dot --no-ignore-exclude --no-ignore-files
        --no-ignore-global --no-ignore-messages --no-ignore-parent --no-ignore-vcs --no-line-number
        --no-messages --no-mmap --no-pcre2-unicode --no-require-git --no-unicode --null --null-data
        --one-file-system --only-matching --passthru --path-separator= --pcre2 --pcre2-version
        --pre-glob= --pretty --quiet --regex-size-limit= --regexp= --replace= --smart-case --sort=
        --sortr= --stats --stop-on-nonmatch --text --threads= --trim --type= --type-add=
        --type-clear= --type-list --type-not= --unrestricted --vimgrep --with-filename
        --word-regexp
    """,
    "sort": """
        -CMRVbcdfghimnrsuz -Skt= --batch-size= --buffer-size= --check? --debug --dictionary-order
        --field-separator= --files0-from= --general-numeric-sort --human-numeric-sort --ignore-case
        --ignore-leading-blanks --ignore-nonprinting --key= --merge --month-sort --numeric-sort
        --parallel= --random-sort --random-source= --reverse --sort= --stable --unique
        --version-sort --zero-terminated
    """,
    # The letters of a word all count, also behind one that has a value: `-Lo 1 f` writes f.
    "tree": """
        -ACDFJNQSUXacdfghilnpqrstuvx -IPL+ --device --dirsfirst --du --filelimit+ --filesfirst
        --gitignore --ignore-case --inodes --matchdirs --metafirst --noreport --prune --si --sort+
        --timefmt+
    """,
    "uniq": """
        -Dcdiuz -fsw= --all-repeated? --check-chars= --count --group? --ignore-case --repeated
        --skip-chars= --skip-fields= --unique --zero-terminated
    """,
}
"""Programs of which other options do harm: a pattern must not become an option."""

FIND_FLAGS = option_names(
    """
    -H -L -P -E ! ( ) , -not -a -and -o -or -true -false -empty -print -print0 -ls -prune -quit
    -depth -d -xdev -mount -daystart -follow -noleaf -nogroup -nouser -readable -writable
    -executable -warn -nowarn -ignore_readdir_race -noignore_readdir_race
    """
)
FIND_VALUED = option_names(
    """
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -type -xtype
    -size -maxdepth -mindepth -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer
    -newermt -user -group -uid -gid -perm -links -inum -samefile -fstype -used -regextype -printf
    """
)

_GIT_DIFF = """
    -RWabcmpsuwz -GISUl= -BCMX? --abbrev? --anchored= --binary --break-rewrites? --cc --check
    --color? --color-moved? --color-moved-ws= --color-words? --compact-summary --cumulative
    --diff-algorithm= --diff-filter= --dirstat? --dirstat-by-file? --dst-prefix= --exit-code
    --find-copies? --find-copies-harder --find-object= --find-renames? --follow --full-index
    --function-context --histogram --ignore-all-space --ignore-blank-lines --ignore-cr-at-eol
    --ignore-matching-lines= --ignore-space-at-eol --ignore-space-change --ignore-submodules?
    --indent-heuristic --inter-hunk-context= --irreversible-delete --ita-invisible-in-index
    --line-prefix= --minimal --name-only --name-status --no-abbrev --no-color --no-color-moved
    --no-ext-diff --no-function-context --no-indent-heuristic --no-patch --no-prefix --no-relative
    --no-renames --no-textconv --numstat --output-indicator-context= --output-indicator-new=
    --output-indicator-old= --patch --patch-with-raw --patch-with-stat --patience --pickaxe-all
    --pickaxe-regex --quiet --raw --relative? --rename-empty --rotate-to= --shortstat --skip-to=
    --src-prefix= --stat? --stat-count= --stat-graph-width= --stat-name-width= --stat-width=
    --summary --text --unified= --word-diff? --word-diff-regex= --ws-error-highlight=
"""
_GIT_REVISIONS = """
    -EFPgiqrtv -Ln= -# --abbrev-commit --after= --all --all-match --ancestry-path? --author=
    --author-date-order --before= --bisect --boundary --branches? --cherry --cherry-mark
    --cherry-pick --children --committer= --date= --date-order --decorate? --decorate-refs=
    --decorate-refs-exclude= --dense --do-walk --encoding= --exclude= --extended-regexp
    --first-parent --fixed-strings --format? --full-history --glob= --graph --grep= --invert-grep
    --left-only --left-right --log-size --mailmap --max-count= --max-parents= --merge --merges
    --min-parents= --no-abbrev-commit --no-decorate --no-mailmap --no-merges --no-notes --no-walk?
    --not --notes? --oneline --parents --perl-regexp --pretty? --reflog --regexp-ignore-case
    --relative-date --remotes? --reverse --right-only --root --simplify-by-decoration
    --simplify-merges --since= --skip= --source --sparse --tags? --topo-order --until=
    --use-mailmap --walk-reflogs
"""
_GIT_LOG = _GIT_DIFF + _GIT_REVISIONS

GIT: Mapping[str, str] = {
    "blame": """
        -bceflnpstw -LS= -CM? --abbrev? --color-by-age --color-lines --contents= --date=
        --encoding= --first-parent --ignore-rev= --ignore-revs-file= --incremental --line-porcelain
        --minimal --porcelain --reverse --root --score-debug --show-email --show-name --show-number
        --show-stats --since=
    """,
    "cherry": "-v --abbrev?",
    "count-objects": "-Hv --human-readable --verbose",
    "describe": """
        --abbrev? --all --always --candidates= --contains --debug --exact-match --exclude=
        --first-parent --long --match= --tags
    """,
    "diff": "--cached --merge-base --no-index --staged " + _GIT_DIFF,
    "diff-tree": "--no-commit-id " + _GIT_LOG,
    "for-each-ref": """
        -ps --color? --contains? --count= --exclude= --format= --ignore-case --include-root-refs
        --merged? --no-contains? --no-merged? --omit-empty --perl --points-at= --python --shell
        --sort= --tcl
    """,
    "grep": """
        -EFGHILPWachilnopqrvwz -ABCefm= -# --after-context= --all-match --and --basic-regexp
        --before-context= --break --cached --color? --column --context= --count --exclude-standard
        --extended-regexp --files-with-matches --files-without-match --fixed-strings --full-name
        --function-context --heading --ignore-case --invert-match --line-number --max-count=
        --max-depth= --name-only --no-color --no-exclude-standard --no-index --no-recursive
        --no-textconv --not --null --only-matching --or --perl-regexp --quiet --recursive
        --show-function --text --threads= --untracked --word-regexp
    """,
    "log": _GIT_LOG,
    "ls-files": """
        -cdfikmostuvz -Xx= --abbrev? --cached --debug --deduplicate --deleted --directory
        --empty-directory --eol --error-unmatch --exclude= --exclude-from= --exclude-per-directory=
        --exclude-standard --format= --full-name --ignored --killed --modified --no-empty-directory
        --others --resolve-undo --sparse --stage --unmerged --with-tree=
    """,
    "ls-tree": """
        -dlrtz --abbrev? --format= --full-name --full-tree --long --name-only --name-status
        --object-only
    """,
    "merge-base": "-a --all --fork-point --independent --is-ancestor --octopus",
    "name-rev": "--all --always --exclude= --name-only --no-undefined --refs= --tags --undefined",
    "rev-list": "--count --header --no-commit-header --objects --timestamp " + _GIT_LOG,
    "rev-parse": """
        -q --abbrev-ref? --absolute-git-dir --all --branches? --flags --git-common-dir --git-dir
        --git-path --is-bare-repository --is-inside-git-dir --is-inside-work-tree
        --is-shallow-repository --local-env-vars --no-flags --no-revs --not --path-format= --quiet
        --remotes? --revs-only --short? --show-cdup --show-object-format? --show-prefix
        --show-superproject-working-tree --show-toplevel --since= --symbolic --symbolic-full-name
        --tags? --until= --verify
    """,
    "shortlog": _GIT_LOG + "-cens -w? --committer --email --group= --numbered --summary",
    "show": _GIT_LOG,
    "status": """
        -bsvz -Mu? --ahead-behind --branch --column? --find-renames? --ignore-submodules?
        --ignored? --long --no-ahead-behind --no-column --no-renames --null --porcelain? --renames
        --short --show-stash --untracked-files? --verbose
    """,
    "whatchanged": _GIT_LOG,
}
"""By the command of git. None runs a program that a repository does not name in its settings."""


_SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin"})

_Check: TypeAlias = Callable[[Sequence[Word]], bool]


def not_reading(script: Script, *, is_trusted: bool = False) -> list[Command]:
    """Return the commands of a script that are not known to read only.

    `is_trusted` says that the user trusts the repository of the folder which they run in.
    """
    programs = {program_name(command.words[0]) for command in script.commands}
    # The settings of a repository, and those in it, may name programs to run.
    harmful = {"git"} if not is_trusted or "cd" in programs else set()
    return [
        command
        for command in script.commands
        if program_name(command.words[0]) in harmful or not _is_read(command)
    ]


def program_name(word: Word) -> str | None:
    """Return the name of a program that the system has; None for one of a folder of its own."""
    path = PurePosixPath(word.text)
    if word.is_pattern or word.text.startswith("~"):
        return None
    return path.name if "/" not in word.text or str(path.parent) in _SYSTEM_FOLDERS else None


def _is_read(command: Command) -> bool:
    name = program_name(command.words[0]) or ""
    words = command.words[1:]
    if name in _ANY_ARGUMENTS:
        return True
    if name in HARMLESS:
        return _are_known(words, HARMLESS[name], strict=False)
    if name in CHECKED and not _are_known(words, CHECKED[name]):
        return False
    check = _CHECKS.get(name)
    return name in CHECKED if check is None else check(words)


def _are_known(words: Sequence[Word], table: str, *, strict: bool = True) -> bool:
    return known_operands(words, known_options(table + _COMMON), strict=strict) is not None


def _find(words: Sequence[Word]) -> bool:
    rest = iter(words)
    for word in rest:
        if word.text in FIND_VALUED:
            word = next(rest, Word("-"))
            if word.text.startswith("-") and not _FIND_NUMBER.fullmatch(word.text):
                return False
        elif word.text.startswith("-") and word.text not in FIND_FLAGS:
            return False
        if word.may_be_many and word.may_be_option:
            return False
    return True


def _uniq(words: Sequence[Word]) -> bool:
    # The second operand is written. Where options end with the first, those behind it are operands.
    operands = known_operands(words, known_options(CHECKED["uniq"] + _COMMON)) or []
    is_last = not operands or words[-1] is operands[0]
    return len(operands) <= 1 and is_last and not any(word.may_be_many for word in words)


def _sed(words: Sequence[Word]) -> bool:
    match [word.text for word in words]:
        case ["-n", "-e", lines, *files] | ["-n", lines, *files] if LINES.fullmatch(lines):
            is_option = any(file.startswith("-") and file != "--" for file in files)
            return not is_option and not any(w.may_be_many and w.may_be_option for w in words)
    return False


def _date(words: Sequence[Word]) -> bool:
    # Another operand sets the clock.
    operands = known_operands(words, known_options(CHECKED["date"] + _COMMON)) or []
    is_format = all(word.text.startswith("+") for word in operands)
    return is_format and not any(word.may_be_many for word in words)


def _printf(words: Sequence[Word]) -> bool:
    ends_options = [word.text for word in words[:1]] == ["--"]
    match words[1:] if ends_options else words:
        case [form, *_]:
            # The format is not known where the name of a file or folder becomes it.
            is_option = not ends_options and form.text.startswith("-")
            is_known = not form.may_be_many and not form.text.startswith("~")
            # Some shells evaluate what is printed as a number, and zsh runs what an index says.
            return is_known and not is_option and bool(_TEXT_FORMAT.fullmatch(form.text))
    return True


def _command(words: Sequence[Word]) -> bool:
    is_lookup = len(words) == 2 and words[0].text in ("-v", "-V")
    return is_lookup and not any(word.may_be_many for word in words)


_BRANCH_LISTS = re.compile(
    r"-[avrl]+|--(all|list|remotes|verbose|show-current|no-color|merged|no-merged|column|no-column)"
)


def _git(words: Sequence[Word]) -> bool:
    match [word.text for word in words]:
        case ["--no-pager", *_]:
            return _git(words[1:])
        case ["--version"]:
            return True
        case ["branch", *rest]:
            return all(map(_BRANCH_LISTS.fullmatch, rest))
        case ["remote", *rest]:
            return rest in ([], ["-v"], ["--verbose"])
        case ["stash", "list"] | ["tag"] | ["tag", "-l" | "--list"] | ["worktree", "list"]:
            return True
        case [name, *rest] if name in GIT:
            # A signature is checked by another program.
            signs = _REF_SIGNATURE if name == "for-each-ref" else _SIGNATURE
            is_known = known_operands(words[1:], known_options(GIT[name])) is not None
            return is_known and not any(map(signs.search, rest))
    return False


_COMMON = " --help --version"
_FIND_NUMBER = re.compile(r"-\d[\w.]*|-[ugoa]+[+=][rwxXst]+")
_TEXT_FORMAT = re.compile(r"(?:[^%]|%%|%-?\d*[sb])*", re.DOTALL)
_SIGNATURE = re.compile(r"%[-+ ]?G")
_REF_SIGNATURE = re.compile(r"signature")

_ANY_ARGUMENTS = option_names("echo expr false true")
"""They have no options, or print what is none."""

_CHECKS: dict[str, _Check] = {
    "command": _command,
    "date": _date,
    "find": _find,
    "git": _git,
    "printf": _printf,
    "sed": _sed,
    "uniq": _uniq,
}
