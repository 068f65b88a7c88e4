package holdfast.curator;
final class Main { public static void main(String[] a) {} }
