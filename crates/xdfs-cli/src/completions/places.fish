
# Paths on servers: the program answers with the word that is being completed, and with what may
# follow it.
function __fish_xdfs_places
    string match -q '*:*' -- (commandline -ct)
    or return
    set -g __fish_xdfs_answer (command xdfs complete-paths (commandline -cp | string collect) 2>/dev/null)
    set -q __fish_xdfs_answer[1]
end

complete -c xdfs -n __fish_xdfs_places -f -a '$__fish_xdfs_answer[1]$__fish_xdfs_answer[2..-1]'
