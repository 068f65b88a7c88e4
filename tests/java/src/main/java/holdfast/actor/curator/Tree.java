package holdfast.actor.curator;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * What is on the server beneath a path, in one line, the same for every client that took the same steps: nodes in order of
 * their numbers with who they belong to (a session or nobody), uuids as U, and data that is a number. Other data
 * is what each library says of itself.
 */
final class Tree {
    private static final Pattern UUID =
            Pattern.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}");
    private static final Pattern NUMBERED = Pattern.compile("_c_.*-(lock-|lease-|__READ__|__WRIT__)-?[0-9]+");

    private final CuratorFramework client;

    Tree(CuratorFramework client) {
        this.client = client;
    }

    /* Of a container the server says the same as of a node that stays. */
    private static String owner(Stat stat) {
        return stat.getEphemeralOwner() == 0 ? "stays" : "session";
    }

    private static String data(byte[] data) {
        return data == null || data.length != 4 ? "" : "=" + ByteBuffer.wrap(data).getInt();
    }

    private static String order(String name) {
        return NUMBERED.matcher(name).matches() ? name.replaceAll("^.*?-(?=[a-zA-Z_]+-?[0-9]+$)", "") : name;
    }

    private void describe(String path, StringBuilder into) throws Exception {
        Stat stat = new Stat();
        byte[] data;
        List<String> children;
        try {
            data = client.getData().storingStatIn(stat).forPath(path);
            children = client.getChildren().forPath(path);
        } catch (KeeperException.NoNodeException e) {
            return;
        }
        into.append(UUID.matcher(path).replaceAll("U")).append(':').append(owner(stat))
                .append(data(data)).append(' ');
        children.sort((a, b) -> order(a).compareTo(order(b)));
        for (String child : children) {
            describe(path.equals("/") ? "/" + child : path + "/" + child, into);
        }
    }

    String of(String path) throws Exception {
        StringBuilder text = new StringBuilder();
        describe(path, text);
        return text.toString().strip();
    }

    /** Names and data of the children, in order: "name=data name=data". */
    String line(String path) throws Exception {
        List<String> children;
        try {
            children = client.getChildren().forPath(path);
        } catch (KeeperException.NoNodeException e) {
            return "";
        }
        children.sort((a, b) -> order(a).compareTo(order(b)));
        return children.stream().collect(Collectors.joining(" "));
    }

    String data(String path) throws Exception {
        return new String(client.getData().forPath(path), StandardCharsets.UTF_8);
    }
}
