
# Paths on servers: the program answers with the word that is being completed, and with what may
# follow it. It gets the line, since bash breaks words at colons.
_xdfs_places() {
    local line="${COMP_LINE:0:COMP_POINT}" answer=() rest
    if [[ "${BASH_VERSINFO[0]}" -ge 4 && "${line}" == *:* ]]; then
        mapfile -t answer < <(command xdfs complete-paths "${line}" 2>/dev/null)
    fi
    if [[ "${#answer[@]}" -eq 0 ]]; then
        _xdfs "$@"
        return
    fi
    COMPREPLY=()
    for rest in "${answer[@]:1}"; do
        COMPREPLY+=( "$2${rest}" )
    done
    # Lists show the last part of each path, and local files are no substitute.
    compopt -o filenames -o noquote +o bashdefault +o default 2>/dev/null
    if [[ "${#COMPREPLY[@]}" -eq 1 && "${COMPREPLY[0]}" == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _xdfs_places -o nosort -o bashdefault -o default xdfs
else
    complete -F _xdfs_places -o bashdefault -o default xdfs
fi
