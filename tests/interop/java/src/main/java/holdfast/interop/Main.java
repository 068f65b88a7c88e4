package holdfast.interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.api.RedissonClient;

/**
 * Real Redisson clients under remote control. Each line on standard input is a command, answered by
 * one line on standard output: {@code ID ok [answer]} or {@code ID err Class message}. Answers come
 * in the order in which commands end, not in which they were sent: the id tells whose it is.
 *
 * <pre>
 *   ID client C URL [watchdog=ms] [timeout=ms] [pool=n] [codec=string] [retries=n]
 *                                                         makes a client C; answers its uuid
 *   ID open C[,C...] KIND NAME H                          makes a handle H (see Kinds)
 *   ID ids C [thread=N]                                   answers "uuid java-thread-id"
 *   ID VERB H [thread=N] [option=value...]                a verb of H's kind (see Locks ...)
 *   ID stress C places=kind:name,... [thread=N]           see Stress
 *   ID rounds C parties=n ... [thread=N]                  see Rounds
 *   ID interrupt thread=N                                 interrupts what thread N waits for
 *   ID asleep thread=N                                    answers whether N waits for a lock's message
 *   ID shutdown C                                         closes a client, orderly
 *   ID die                                                ends the JVM, closing nothing
 *   ID ping                                               answers nothing
 * </pre>
 *
 * {@code thread=N} names an actor, a Java thread that stays; without it a command runs on actor 0.
 * The program ends at once when its input ends, so that it never outlives its driver.
 */
public final class Main {
    private final Map<String, Actor> actors = new ConcurrentHashMap<>();
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
    private final Map<String, Verb.Bound<?>> handles = new ConcurrentHashMap<>();
    private final PrintStream out;

    private Main(PrintStream out) {
        this.out = out;
    }

    private static <T> T known(Map<String, T> map, String what, String name) {
        T found = map.get(name);
        if (found == null) {
            throw new IllegalArgumentException("no " + what + " " + name);
        }
        return found;
    }

    /** Of names with commas between. */
    private List<RedissonClient> knownClients(String names) {
        List<RedissonClient> found = new ArrayList<>();
        for (String name : names.split(",")) {
            found.add(known(clients, "client", name));
        }
        return found;
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

    private Object openClient(Request request) {
        RedissonClient client = Clients.open(request.word(0), request.word(1), request);
        clients.put(request.word(0), client);
        return client.getId();
    }

    private Object openHandle(Request request) {
        List<RedissonClient> owners = knownClients(request.word(0));
        handles.put(request.word(3), Kinds.open(owners, request.word(1), request.word(2)));
        return "";
    }

    private Object shutdown(Request request) {
        known(clients, "client", request.word(0)).shutdown();
        clients.remove(request.word(0));
        return "";
    }

    private Object run(Request request) throws Exception {
        switch (request.verb) {
            case "client":
                return openClient(request);
            case "open":
                return openHandle(request);
            case "ids":
                return known(clients, "client", request.word(0)).getId() + ' '
                        + Thread.currentThread().getId();
            case "shutdown":
                return shutdown(request);
            case "stress":
                return new Stress(known(clients, "client", request.word(0)),
                        request.has("members") ? knownClients(request.text("members")) : List.of(),
                        request).run();
            case "rounds":
                return new Rounds(known(clients, "client", request.word(0)), request).run();
            case "ping":
                return "";
            default:
                return known(handles, "handle", request.word(0)).run(request);
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
        if (request.verb.equals("die")) {
            Runtime.getRuntime().halt(1);
        }
        if (request.verb.equals("interrupt")) {
            answerTo(request.id, () -> {
                actor(request).interrupt();
                return "";
            });
            return;
        }
        if (request.verb.equals("asleep")) {
            answerTo(request.id, () -> actor(request).isAsleep());
            return;
        }
        actor(request).submit(() -> answerTo(request.id, () -> run(request)));
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
