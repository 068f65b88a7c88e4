package holdfast.actor;

import java.util.Map;

/** What can be done with an object of type T: runs on the actor's thread, returns the answer. */
@FunctionalInterface
public interface Verb<T> {
    Object run(T object, Request request) throws Exception;

    /** An opened object together with the verbs of its kind. */
    record Bound<T>(T object, Map<String, Verb<? super T>> verbs) {
        Object run(Request request) throws Exception {
            Verb<? super T> verb = verbs.get(request.verb);
            if (verb == null) {
                throw new IllegalArgumentException("this kind has no verb " + request.verb);
            }
            return verb.run(object, request);
        }
    }
}
