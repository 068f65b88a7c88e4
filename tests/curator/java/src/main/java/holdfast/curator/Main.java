package holdfast.curator;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.zookeeper.CreateMode;

/**
 * Real Curator clients under remote control. Each line on standard input is a command, answered by one line on
 * standard output: {@code ID ok [answer]} or {@code ID err Class message}, in the order in which commands end.
 *
 * <pre>
 *   ID client C HOSTS [session=ms]        makes a client C
 *   ID open C KIND PATH H                 makes a handle H (see Kinds); of a multi: PATH,PATH
 *   ID readwrite C PATH R W               makes the two handles of a read-write lock
 *   ID VERB H [thread=N] [option=value]   a verb of H's kind (see Locks, Permits, Counts)
 *   ID tree C PATH                        what is there (see Tree)
 *   ID line C PATH                        its children in order; ID data C PATH: what it holds
 *   ID put C PATH data=TEXT               makes a node that stays, and its parents
 *   ID remove C PATH                      deletes it with all beneath
 *   ID revoke C PATH                      asks the holder to give up, as Curator's Revoker does
 *   ID bench ...                          see Bench
 *   ID interrupt thread=N                 interrupts what thread N waits for
 *   ID shutdown C                         closes a client, orderly
 *   ID die                                ends the JVM, closing nothing
 *   ID ping                               answers nothing
 * </pre>
 *
 * {@code thread=N} names an actor, a Java thread that stays; without it a command runs on actor 0. The program
 * ends at once when its input ends, so that it never outlives its driver.
 */
public final class Main {
    private final Map<String, Actor> actors = new ConcurrentHashMap<>();
    private final Map<String, CuratorFramework> clients = new ConcurrentHashMap<>();
    private final Map<String, Verb.Bound<?>> handles = new ConcurrentHashMap<>();
    private final PrintStream out;

    private Main(PrintStream out) {
        this.out = out;
    }

    private void answer(String id, String text) {
        String line = id + ' ' + text.replace('\n', ' ').replace('\r', ' ').stripTrailing() + '\n';
        synchronized (out) {
            out.print(line);
            out.flush();
        }
    }

    private void answerTo(String id, Callable<Object> command) {
        try {
            answer(id, "ok " + command.call());
        } catch (Throwable e) {
            /* Errors too: what goes wrong has to reach the driver, or it would wait for nothing. */
            answer(id, "err " + e.getClass().getSimpleName() + ' ' + e.getMessage());
        }
    }

    private CuratorFramework client(Request request) {
        CuratorFramework found = clients.get(request.word(0));
        if (found == null) {
            throw new IllegalArgumentException("no client " + request.word(0));
        }
        return found;
    }

    private Object openReadWrite(Request request) {
        Verb.Bound<?>[] both = Kinds.openReadWrite(client(request), request.word(1));
        handles.put(request.word(2), both[0]);
        handles.put(request.word(3), both[1]);
        return "";
    }

    private static Object put(CuratorFramework client, Request request) throws Exception {
        byte[] data = request.text("data").getBytes(StandardCharsets.UTF_8);
        client.create().creatingParentsIfNeeded().withMode(CreateMode.PERSISTENT)
                .forPath(request.word(1), data);
        return "";
    }

    private Object onHandle(Request request) throws Exception {
        Verb.Bound<?> handle = handles.get(request.word(0));
        if (handle == null) {
            throw new IllegalArgumentException("no handle " + request.word(0));
        }
        return handle.run(request);
    }

    private Object run(Request request) throws Exception {
        switch (request.verb) {
            case "client":
                clients.put(request.word(0), Clients.open(request.word(1), request));
                return "";
            case "open":
                handles.put(request.word(3), Kinds.open(client(request), request.word(1), request.word(2)));
                return "";
            case "readwrite":
                return openReadWrite(request);
            case "tree":
                return new Tree(client(request)).of(request.word(1));
            case "line":
                return new Tree(client(request)).line(request.word(1));
            case "data":
                return new Tree(client(request)).data(request.word(1));
            case "put":
                return put(client(request), request);
            case "remove":
                client(request).delete().deletingChildrenIfNeeded().forPath(request.word(1));
                return "";
            case "revoke":
                Revoker.attemptRevoke(client(request), request.word(1));
                return "";
            case "bench":
                return new Bench(request).run();
            case "shutdown":
                client(request).close();
                clients.remove(request.word(0));
                return "";
            case "ping":
                return "";
            default:
                return onHandle(request);
        }
    }

    private Actor actor(Request request) {
        String name = request.has("thread") ? request.text("thread") : "0";
        return actors.computeIfAbsent(name, Actor::new);
    }

    private void dispatch(String line) {
        Request request;
        try {
            request = new Request(line);
        } catch (IllegalArgumentException e) {
            answer("0", "err " + e.getClass().getSimpleName() + ' ' + e.getMessage());
            return;
        }
        switch (request.verb) {
            case "die":
                Runtime.getRuntime().halt(1);
                return;
            case "interrupt":
                actor(request).interrupt();
                answer(request.id, "ok");
                return;
            default:
                actor(request).submit(() -> answerTo(request.id, () -> run(request)));
        }
    }

    public static void main(String[] arguments) throws IOException {
        /* Answers have standard output to themselves: what a library prints goes elsewhere. */
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false,
                StandardCharsets.UTF_8);
        System.setOut(System.err);

        Main main = new Main(answers);
        try (BufferedReader in = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            String line;
            while ((line = in.readLine()) != null) {
                if (!line.isBlank()) {
                    main.dispatch(line);
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
