"""The options of programs that read and print, and do nothing else with them. No I/O.

An option that is not here is not known to be harmful. One that writes, runs a program, or is of
another kind in another edition of the program is left out on purpose.
Source: docs/tools.md, "Approvals and rules"; the manuals of the programs.
"""

from collections.abc import Mapping

from app_server.permissions.shell.options import option_names

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
