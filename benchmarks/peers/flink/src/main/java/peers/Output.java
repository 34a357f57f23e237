package peers;

/** One output of a session; a POJO as Flink's serializer wants it. */
public final class Output {
    public String key;
    public byte[] value;

    public Output() {}

    Output(String key, byte[] value) {
        this.key = key;
        this.value = value;
    }
}
