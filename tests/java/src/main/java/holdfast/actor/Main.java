package holdfast.actor;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Real clients of one library under remote control: the argument names it, {@code redisson} or {@code curator}. Each line on
 * standard input is a command, answered by one line on standard output: {@code ID ok [answer]} or
 * {@code ID err Class message}. Answers come in the order in which commands end; the id says which command an answer is of.
 *
 * <pre>
 *   ID client C URL [option=value...]         makes a client C; answers its id (options: the library's Clients)
 *   ID open C[,C...] KIND NAME H              makes a handle H (see the library's Kinds)
 *   ID ids C [thread=N]                       answers the client's id and the id of the Java thread
 *   ID VERB H [thread=N] [option=value...]    a verb of H's kind
 *   ID interrupt thread=N                     interrupts what thread N waits for
 *   ID asleep thread=N                        answers whether N waits for a lock's message
 *   ID shutdown C                             closes a client, orderly
 *   ID die                                    ends the JVM, closing nothing
 *   ID ping                                   answers nothing
 * </pre>
 *
 * Each library adds commands of its own (see its Library). {@code thread=N} names an actor, a Java thread that stays; without
 * it a command runs on actor 0. The program ends at once when its input ends, so that it never outlives its driver.
 */
public final class Main {
    private final Map<String, Actor> actors = new ConcurrentHashMap<>();
    private final Backend<?> backend;
    private final PrintStream out;

    private Main(Backend<?> backend, PrintStream out) {
        this.backend = backend;
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
        actor(request).submit(() -> answerTo(request.id, () -> backend.run(request)));
    }

    /* By name, since the other library's classes are not on the class path. */
    private static Backend<?> load(String[] arguments) throws ReflectiveOperationException {
        if (arguments.length != 1) {
            throw new IllegalArgumentException("expected: redisson or curator");
        }
        Class<?> library = Class.forName("holdfast.actor." + arguments[0] + ".Library");
        return (Backend<?>) library.getDeclaredConstructor().newInstance();
    }

    public static void main(String[] arguments) throws Exception {
        /* Answers have standard output to themselves: what a library prints goes elsewhere. */
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false,
                StandardCharsets.UTF_8);
        System.setOut(System.err);

        Main main = new Main(load(arguments), answers);
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
