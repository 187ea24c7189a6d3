# Paths on servers: the program answers with the word that is being completed, and with what may
# follow it.
_xdfs_places() {
    [[ $words[CURRENT] == *:* ]] || return 1
    local line="$words[1,CURRENT-1] $QIPREFIX$PREFIX" typed="${PREFIX##*/}" text
    local -a answer directories files full shown
    while IFS= read -r text; do
        answer+=("$text")
    done < <(command xdfs complete-paths "$line" 2>/dev/null)
    (( $#answer )) || return 1
    shift answer
    [[ -n $compstate[quote] ]] || answer=("${(@q)answer}")
    directories=("${(@M)answer:#*/}")
    files=("${(@)answer:#*/}")
    full=("${(@)directories/#/$PREFIX}") shown=("${(@)directories/#/$typed}")
    compadd -J places -U -Q -S '' -d shown -a full
    full=("${(@)files/#/$PREFIX}") shown=("${(@)files/#/$typed}")
    compadd -J places -U -Q -d shown -a full
    return 0
}
