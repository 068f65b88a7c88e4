package holdfast.actor.redisson;

import holdfast.actor.Backend;
import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.List;
import java.util.concurrent.Callable;
import org.redisson.api.RedissonClient;

/**
 * Redisson. Its own commands:
 *
 * <pre>
 *   ID stress C places=kind:name,... [members=C,...] [thread=N]    see Stress
 *   ID rounds C parties=n ... [thread=N]                           see Rounds
 * </pre>
 */
public final class Library extends Backend<RedissonClient> {
    @Override
    protected RedissonClient connect(String name, String url, Request request) {
        return Clients.open(name, url, request);
    }

    @Override
    protected void close(RedissonClient client) {
        client.shutdown();
    }

    @Override
    protected String idOf(RedissonClient client) {
        return client.getId();
    }

    @Override
    protected Verb.Bound<?> open(List<RedissonClient> owners, String kind, String name) {
        return Kinds.open(owners, kind, name);
    }

    @Override
    protected Callable<Object> command(Request request) {
        switch (request.verb) {
            case "stress":
                return () -> new Stress(client(request),
                        request.has("members") ? clients(request.text("members")) : List.of(),
                        request).run();
            case "rounds":
                return () -> new Rounds(client(request), request).run();
            default:
                return null;
        }
    }
}
