package holdfast.actor;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;

/**
 * One library under remote control: its clients (of type C), and the handles opened at them. Every command runs on the
 * thread of an actor (see {@link Main}), so both maps are shared by threads.
 *
 * @param <C> the library's own client
 */
public abstract class Backend<C> {
    private final Map<String, C> clients = new ConcurrentHashMap<>();
    private final Map<String, Verb.Bound<?>> handles = new ConcurrentHashMap<>();

    /** Connects; the options are the library's. */
    protected abstract C connect(String name, String url, Request request) throws Exception;

    protected abstract void close(C client);

    /** The client's id in owner names; empty if it has none. */
    protected abstract String idOf(C client);

    /** Opens an object. A lock made of several may have several clients; any other kind has one. */
    protected abstract Verb.Bound<?> open(List<C> owners, String kind, String name) throws Exception;

    /** A command of this library alone; null if it has none of that verb. */
    protected abstract Callable<Object> command(Request request);

    private static <T> T known(Map<String, T> map, String what, String name) {
        T found = map.get(name);
        if (found == null) {
            throw new IllegalArgumentException("no " + what + " " + name);
        }
        return found;
    }

    /** The client that the command's first word names. */
    protected final C client(Request request) {
        return known(clients, "client", request.word(0));
    }

    /** Of names with commas between. */
    protected final List<C> clients(String names) {
        List<C> found = new ArrayList<>();
        for (String name : names.split(",")) {
            found.add(known(clients, "client", name));
        }
        return found;
    }

    protected final void addHandle(String name, Verb.Bound<?> handle) {
        handles.put(name, handle);
    }

    private Object openClient(Request request) throws Exception {
        C client = connect(request.word(0), request.word(1), request);
        clients.put(request.word(0), client);
        return idOf(client);
    }

    private Object shutdown(Request request) {
        close(client(request));
        clients.remove(request.word(0));
        return "";
    }

    final Object run(Request request) throws Exception {
        switch (request.verb) {
            case "client":
                return openClient(request);
            case "open":
                addHandle(request.word(3),
                        open(clients(request.word(0)), request.word(1), request.word(2)));
                return "";
            case "ids":
                return idOf(client(request)) + ' ' + Thread.currentThread().getId();
            case "shutdown":
                return shutdown(request);
            case "ping":
                return "";
            default:
                Callable<Object> command = command(request);
                return command != null ? command.call()
                        : known(handles, "handle", request.word(0)).run(request);
        }
    }
}
