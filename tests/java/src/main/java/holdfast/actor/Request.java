package holdfast.actor;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * One command line: {@code ID VERB word... option=value...}. Words and values are percent-encoded,
 * so that a name may hold any character.
 */
public final class Request {
    public final String id;
    public final String verb;
    private final List<String> words = new ArrayList<>();
    private final Map<String, String> options = new HashMap<>();

    Request(String line) {
        String[] tokens = line.trim().split(" +");
        if (tokens.length < 2) {
            throw new IllegalArgumentException("expected: ID VERB ...");
        }
        id = tokens[0];
        verb = tokens[1];
        for (int i = 2; i < tokens.length; i++) {
            int equals = tokens[i].indexOf('=');
            if (equals > 0) {
                String value = decode(tokens[i].substring(equals + 1));
                options.put(tokens[i].substring(0, equals), value);
            } else {
                words.add(decode(tokens[i]));
            }
        }
    }

    private static String decode(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    public String word(int index) {
        if (index >= words.size()) {
            throw new IllegalArgumentException(verb + ": word " + (index + 1) + " is missing");
        }
        return words.get(index);
    }

    public List<String> wordsFrom(int index) {
        return words.subList(Math.min(index, words.size()), words.size());
    }

    public boolean has(String option) {
        return options.containsKey(option);
    }

    public String text(String option) {
        String value = options.get(option);
        if (value == null) {
            throw new IllegalArgumentException(verb + ": " + option + "= is missing");
        }
        return value;
    }

    public long number(String option) {
        return Long.parseLong(text(option));
    }

    public long number(String option, long otherwise) {
        return has(option) ? number(option) : otherwise;
    }

    public int permits() {
        return (int) number("permits", 1);
    }
}
