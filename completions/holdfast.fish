# Completion of holdfast(1) for fish. Which words there are is asked of the tool itself.

function __holdfast_words
    set -l tokens (commandline -opc)
    set -l tool $tokens[1]
    set -l all ($tool completion 2>/dev/null)
    set -l names (string match -r '^[^-\t]+(?=\t)' -- $all)
    for word in $tokens[2..-1]
        if contains -- $word $names
            if contains -- $word help completion
                string match -r '^[^-].*' -- $all
            else
                $tool completion $word 2>/dev/null
            end
            return
        end
    end
    string join \n -- $all
end

complete -c holdfast -a '(__holdfast_words)'
