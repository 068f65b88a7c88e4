package holdfast.actor.curator;

import holdfast.actor.Backend;
import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.Callable;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.zookeeper.CreateMode;

/**
 * Curator. Its own commands:
 *
 * <pre>
 *   ID readwrite C PATH R W     makes the two handles of a read-write lock
 *   ID tree C PATH              the nodes beneath it (see Tree)
 *   ID line C PATH              its children in order
 *   ID data C PATH              the node's data
 *   ID put C PATH data=TEXT     makes a persistent node, and its parents
 *   ID remove C PATH            deletes it with all beneath
 *   ID revoke C PATH            asks the holder to give up, by Curator's Revoker
 *   ID bench ...                see Bench
 * </pre>
 */
public final class Library extends Backend<CuratorFramework> {
    @Override
    protected CuratorFramework connect(String name, String url, Request request) throws InterruptedException {
        return Clients.open(url, request);
    }

    @Override
    protected void close(CuratorFramework client) {
        client.close();
    }

    @Override
    protected String idOf(CuratorFramework client) {
        return "";
    }

    @Override
    protected Verb.Bound<?> open(List<CuratorFramework> owners, String kind, String path) throws Exception {
        return Kinds.open(owners.get(0), kind, path);
    }

    private Object openReadWrite(Request request) {
        Verb.Bound<?>[] both = Kinds.openReadWrite(client(request), request.word(1));
        addHandle(request.word(2), both[0]);
        addHandle(request.word(3), both[1]);
        return "";
    }

    private Object put(Request request) throws Exception {
        byte[] data = request.text("data").getBytes(StandardCharsets.UTF_8);
        client(request).create().creatingParentsIfNeeded().withMode(CreateMode.PERSISTENT)
                .forPath(request.word(1), data);
        return "";
    }

    private Object remove(Request request) throws Exception {
        client(request).delete().deletingChildrenIfNeeded().forPath(request.word(1));
        return "";
    }

    private Object revoke(Request request) throws Exception {
        Revoker.attemptRevoke(client(request), request.word(1));
        return "";
    }

    @Override
    protected Callable<Object> command(Request request) {
        switch (request.verb) {
            case "readwrite":
                return () -> openReadWrite(request);
            case "tree":
                return () -> new Tree(client(request)).of(request.word(1));
            case "line":
                return () -> new Tree(client(request)).line(request.word(1));
            case "data":
                return () -> new Tree(client(request)).data(request.word(1));
            case "put":
                return () -> put(request);
            case "remove":
                return () -> remove(request);
            case "revoke":
                return () -> revoke(request);
            case "bench":
                return () -> new Bench(request).run();
            default:
                return null;
        }
    }
}
