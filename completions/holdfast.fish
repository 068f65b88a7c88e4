# Completion of holdfast(1) for fish. The tool itself lists the words.

# The names of locks on the server that the options name; queried at most once a second.
function __holdfast_names
    set -l now (date +%s)
    if test "$argv $now" != "$__holdfast_names_of"
        set -g __holdfast_names_all ($argv completion --names 2>/dev/null </dev/null)
        set -g __holdfast_names_of "$argv $now"
    end
    string join \n -- $__holdfast_names_all
end

function __holdfast_words
    set -l tokens (commandline -opc)
    set -l tool $tokens[1]
    set -l all ($tool completion 2>/dev/null)
    set -l names (string match -r '^[^-\t]+(?=\t)' -- $all)
    set -l before $tool
    for word in $tokens[2..-1]
        if contains -- $word $names
            if test (count $tokens) -gt (math (count $before) + 1)
                # The values of the preceding option; none: files, which fish offers by itself.
                set -l values ($tool completion $word $tokens[-1] 2>/dev/null)
                if test $status -eq 0
                    string join \n -- $values
                    return
                end
            end
            if contains -- $word help completion
                string match -r '^[^-].*' -- $all
            else
                $tool completion $word 2>/dev/null
            end
            if contains -- $word run elect hold acquire extend release unlock show watch log
                __holdfast_names $before
            end
            return
        end
        set -a before $word
    end
    string join \n -- $all
end

complete -c holdfast -a '(__holdfast_words)'
