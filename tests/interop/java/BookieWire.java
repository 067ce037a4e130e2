import com.google.protobuf.ByteString;
import com.google.protobuf.ExtensionRegistry;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.ChannelHandler;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.apache.bookkeeper.proto.BookieProtoEncoding;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.BookkeeperProtocol;
import org.apache.bookkeeper.proto.BookkeeperProtocol.OperationType;
import org.apache.bookkeeper.proto.BookkeeperProtocol.StatusCode;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.util.AvailabilityOfEntriesOfLedger;
import org.apache.bookkeeper.util.ByteBufList;

/**
 * The bookie protocol by Apache BookKeeper's own classes: what they write, and what they read.
 *
 * <p>{@code write}: frames, one a line: name and bytes in hex. {@code requests FILE}, {@code answers FILE}: each line of
 * the file is what a connection received, in hex; for each a line of what Apache's decoder made of it, word by word:
 * {@code v3:HEX} (the message, serialised again), {@code v2:FIELDS}, {@code closed} (an exception came up, at which a
 * bookie or client closes the connection). {@code available FILE}: each line is a list of entries; for each a line of
 * the ids among the first 200 that are in it.
 */
public final class BookieWire {
    private static final byte[] KEY = new byte[20];
    private static final UnpooledByteBufAllocator ALLOCATOR = UnpooledByteBufAllocator.DEFAULT;
    private static final ExtensionRegistry REGISTRY = ExtensionRegistry.getEmptyRegistry();
    private static final BookieProtoEncoding.RequestEnDeCoderPreV3 REQUESTS_V2 =
            new BookieProtoEncoding.RequestEnDeCoderPreV3(REGISTRY);
    private static final BookieProtoEncoding.ResponseEnDeCoderPreV3 ANSWERS_V2 =
            new BookieProtoEncoding.ResponseEnDeCoderPreV3(REGISTRY);

    static {
        for (int i = 0; i < KEY.length; i++) {
            KEY[i] = (byte) (200 + i);
        }
    }

    private BookieWire() {}

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "write":
                write();
                break;
            case "available":
                for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                    available(ByteBufUtil.decodeHexDump(line));
                }
                break;
            default:
                for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                    read(arguments[0], ByteBufUtil.decodeHexDump(line));
                }
        }
    }

    // ---- writing -------------------------------------------------------------------------------------------------

    private static void write() throws Exception {
        for (int flags : new int[] {0, 2, 4, 6}) {
            say("v2.add." + flags, v2Add(7, 9, flags, "hello"));
        }
        say("v2.add.ids", v2Add(1L << 40, 1L << 33, 0, "x".repeat(300)));
        say("v2.read", v2Request("ReadRequest", (byte) 2, 7L, 9L, (short) 0, null));
        say("v2.read.last", v2Request("ReadRequest", (byte) 2, 7L, -1L, (short) 4, null));
        say("v2.read.fence", v2Request("ReadRequest", (byte) 2, 7L, -1L, (short) 1, KEY));
        say("v2.batch", v2Request("BatchedReadRequest", (byte) 2, 7L, 9L, (short) 0, null, 77L, 10, 5000L));
        say("v2.batch.fence", v2Request("BatchedReadRequest", (byte) 2, 7L, 9L, (short) 1, KEY, -7L, 0, 1L << 40));
        ByteBuf entry = Unpooled.wrappedBuffer(entry(7, 9, "hello"));
        say("v2.answer.add", v2Answer(create("AddResponse", (byte) 2, 0, 7L, 9L)));
        say("v2.answer.add.fenced", v2Answer(create("AddResponse", (byte) 2, 104, 7L, 9L)));
        say("v2.answer.read", v2Answer(construct("ReadResponse", (byte) 2, 0, 7L, 9L, entry)));
        say("v2.answer.read.absent", v2Answer(construct("ReadResponse", (byte) 2, 2, 7L, 9L)));
        ByteBufList entries = ByteBufList.get(
                Unpooled.wrappedBuffer(entry(7, 9, "hello")), Unpooled.wrappedBuffer(entry(7, 10, "world!")));
        say("v2.answer.batch", v2Answer(construct("BatchedReadResponse", (byte) 2, 0, 7L, 9L, 77L, entries)));
        say("v2.answer.batch.absent", v2Answer(construct("BatchedReadResponse", (byte) 2, 1, 7L, 9L, 77L)));
        writeV3Requests();
        writeV3Answers();
        long[] gaps = {0, 3, 6, 9, 20, 21, 22, 30, 31, 32, 40, 41, 42, 77};
        say("list.gaps", new AvailabilityOfEntriesOfLedger(gaps).serializeStateOfEntriesOfLedger());
        say("list.none", new AvailabilityOfEntriesOfLedger(new long[0]).serializeStateOfEntriesOfLedger());
        long[] run = LongStream.range(5, 105).toArray();
        say("list.run", new AvailabilityOfEntriesOfLedger(run).serializeStateOfEntriesOfLedger());
    }

    private static void writeV3Requests() throws Exception {
        ByteString key = ByteString.copyFrom(KEY);
        ByteString entry = ByteString.copyFrom(entry(7, 9, "hello"));
        BookkeeperProtocol.AddRequest.Builder add = BookkeeperProtocol.AddRequest.newBuilder()
                .setLedgerId(7).setEntryId(9).setMasterKey(key).setBody(entry);
        say("v3.add", request(OperationType.ADD_ENTRY, 5, 0).setAddRequest(add).build());
        say("v3.add.high", request(OperationType.ADD_ENTRY, 1L << 40, 100).setAddRequest(add).build());
        say("v3.add.deferred", request(OperationType.ADD_ENTRY, 300, 0)
                .setAddRequest(add.clone().setWriteFlags(1)).build());
        say("v3.add.recovery", request(OperationType.ADD_ENTRY, 300, 0)
                .setAddRequest(add.clone().setFlag(BookkeeperProtocol.AddRequest.Flag.RECOVERY_ADD)).build());
        BookkeeperProtocol.ReadRequest.Builder read =
                BookkeeperProtocol.ReadRequest.newBuilder().setLedgerId(7).setEntryId(9);
        BookkeeperProtocol.ReadRequest.Builder last = read.clone().setEntryId(-1);
        say("v3.read", request(OperationType.READ_ENTRY, 6, 0).setReadRequest(read).build());
        say("v3.read.last", request(OperationType.READ_ENTRY, 6, 100).setReadRequest(last).build());
        say("v3.fence", request(OperationType.READ_ENTRY, 6, 0).setReadRequest(last.clone().setMasterKey(key)
                .setFlag(BookkeeperProtocol.ReadRequest.Flag.FENCE_LEDGER)).build());
        say("v3.poll", request(OperationType.READ_ENTRY, 6, 0).setReadRequest(last.clone().setPreviousLAC(4)
                .setTimeOut(1500).setFlag(BookkeeperProtocol.ReadRequest.Flag.ENTRY_PIGGYBACK)).build());
        say("v3.write_lac", request(OperationType.WRITE_LAC, 6, 0).setWriteLacRequest(
                BookkeeperProtocol.WriteLacRequest.newBuilder().setLedgerId(7).setLac(9).setMasterKey(key)
                        .setBody(entry)).build());
        say("v3.read_lac", request(OperationType.READ_LAC, 6, 0).setReadLacRequest(
                BookkeeperProtocol.ReadLacRequest.newBuilder().setLedgerId(7)).build());
        say("v3.force", request(OperationType.FORCE_LEDGER, 6, 0).setForceLedgerRequest(
                BookkeeperProtocol.ForceLedgerRequest.newBuilder().setLedgerId(7)).build());
        say("v3.list", request(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, 6, 0).setGetListOfEntriesOfLedgerRequest(
                BookkeeperProtocol.GetListOfEntriesOfLedgerRequest.newBuilder().setLedgerId(7)).build());
        say("v3.info", request(OperationType.GET_BOOKIE_INFO, 6, 0).setGetBookieInfoRequest(
                BookkeeperProtocol.GetBookieInfoRequest.newBuilder().setRequested(3)).build());
        say("v3.auth", request(OperationType.AUTH, 6, 0).setAuthRequest(BookkeeperProtocol.AuthMessage.newBuilder()
                .setAuthPluginName("plugin").setPayload(entry)).build());
        say("v3.tls", request(OperationType.START_TLS, 6, 0).setStartTLSRequest(
                BookkeeperProtocol.StartTLSRequest.newBuilder()).build());
        say("v3.range", request(OperationType.RANGE_READ_ENTRY, 6, 0).build());
        BookkeeperProtocol.Request.Builder old = request(OperationType.READ_ENTRY, 6, 0).setReadRequest(read);
        old.getHeaderBuilder().setVersion(BookkeeperProtocol.ProtocolVersion.VERSION_TWO);
        say("v3.read.version2", old.build());
    }

    private static void writeV3Answers() throws Exception {
        ByteString entry = ByteString.copyFrom(entry(7, 9, "hello"));
        for (StatusCode status : new StatusCode[] {StatusCode.EOK, StatusCode.EFENCED}) {
            say("v3.answer.add." + status, answer(OperationType.ADD_ENTRY, status).setAddResponse(
                    BookkeeperProtocol.AddResponse.newBuilder().setStatus(status).setLedgerId(7).setEntryId(9)).build());
            say("v3.answer.write_lac." + status, answer(OperationType.WRITE_LAC, status).setWriteLacResponse(
                    BookkeeperProtocol.WriteLacResponse.newBuilder().setStatus(status).setLedgerId(7)).build());
            say("v3.answer.force." + status, answer(OperationType.FORCE_LEDGER, status).setForceLedgerResponse(
                    BookkeeperProtocol.ForceLedgerResponse.newBuilder().setStatus(status).setLedgerId(7)).build());
        }
        BookkeeperProtocol.ReadResponse.Builder read = BookkeeperProtocol.ReadResponse.newBuilder()
                .setStatus(StatusCode.EOK).setLedgerId(7).setEntryId(9).setBody(entry);
        say("v3.answer.read", answer(OperationType.READ_ENTRY, StatusCode.EOK)
                .setReadResponse(read.clone().setMaxLAC(8)).build());
        say("v3.answer.read.bare", answer(OperationType.READ_ENTRY, StatusCode.EOK).setReadResponse(read).build());
        say("v3.answer.read.poll", answer(OperationType.READ_ENTRY, StatusCode.EOK)
                .setReadResponse(read.clone().setMaxLAC(-1).setLacUpdateTimestamp(1234567890123L)).build());
        say("v3.answer.read.absent", answer(OperationType.READ_ENTRY, StatusCode.ENOENTRY)
                .setReadResponse(BookkeeperProtocol.ReadResponse.newBuilder().setStatus(StatusCode.ENOENTRY)
                        .setLedgerId(7).setEntryId(-1)).build());
        say("v3.answer.read_lac", answer(OperationType.READ_LAC, StatusCode.EOK).setReadLacResponse(
                BookkeeperProtocol.ReadLacResponse.newBuilder().setStatus(StatusCode.EOK).setLedgerId(7)
                        .setLacBody(entry).setLastEntryBody(entry)).build());
        say("v3.answer.list", answer(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, StatusCode.EOK)
                .setGetListOfEntriesOfLedgerResponse(BookkeeperProtocol.GetListOfEntriesOfLedgerResponse.newBuilder()
                        .setStatus(StatusCode.EOK).setLedgerId(7).setAvailabilityOfEntriesOfLedger(entry)).build());
        say("v3.answer.info", answer(OperationType.GET_BOOKIE_INFO, StatusCode.EOK).setGetBookieInfoResponse(
                BookkeeperProtocol.GetBookieInfoResponse.newBuilder().setStatus(StatusCode.EOK)
                        .setTotalDiskCapacity(1L << 40).setFreeDiskSpace(12345)).build());
        say("v3.answer.auth", answer(OperationType.AUTH, StatusCode.EOK).setAuthResponse(
                BookkeeperProtocol.AuthMessage.newBuilder().setAuthPluginName("AuthDisabledPlugin")
                        .setPayload(ByteString.EMPTY)).build());
        say("v3.answer.tls.refused", answer(OperationType.START_TLS, StatusCode.EBADREQ).build());
    }

    private static BookkeeperProtocol.BKPacketHeader.Builder header(OperationType operation, long txnId) {
        return BookkeeperProtocol.BKPacketHeader.newBuilder()
                .setVersion(BookkeeperProtocol.ProtocolVersion.VERSION_THREE).setOperation(operation).setTxnId(txnId);
    }

    private static BookkeeperProtocol.Request.Builder request(OperationType operation, long txnId, int priority) {
        BookkeeperProtocol.BKPacketHeader.Builder header = header(operation, txnId);
        if (priority > 0) {
            header.setPriority(priority);
        }
        return BookkeeperProtocol.Request.newBuilder().setHeader(header);
    }

    private static BookkeeperProtocol.Response.Builder answer(OperationType operation, StatusCode status) {
        return BookkeeperProtocol.Response.newBuilder().setHeader(header(operation, 6)).setStatus(status);
    }

    private static byte[] entry(long ledgerId, long entryId, String payload) {
        ByteBuf entry = Unpooled.buffer();
        entry.writeLong(ledgerId).writeLong(entryId).writeLong(entryId - 1).writeLong(payload.length());
        entry.writeBytes(payload.getBytes());
        return ByteBufUtil.getBytes(entry);
    }

    private static Object v2Add(long ledgerId, long entryId, int flags, String payload) throws Exception {
        DigestManager digest = DigestManager.instantiate(
                ledgerId, "secret".getBytes(), DigestType.CRC32C, ALLOCATOR, true);
        return digest.computeDigestAndPackageForSending(
                entryId, entryId - 1, payload.length(), Unpooled.wrappedBuffer(payload.getBytes()), KEY, flags);
    }

    private static Object v2Request(String kind, Object... values) throws Exception {
        return REQUESTS_V2.encode(create(kind, values), ALLOCATOR);
    }

    private static Object v2Answer(Object answer) throws Exception {
        return ANSWERS_V2.encode(answer, ALLOCATOR);
    }

    private static Object create(String kind, Object... values) throws Exception {
        for (Method method : Class.forName(BookieProtocol.class.getName() + "$" + kind).getDeclaredMethods()) {
            if (method.getName().equals("create") && method.getParameterCount() == values.length) {
                method.setAccessible(true);
                return method.invoke(null, values);
            }
        }
        throw new IllegalStateException(kind);
    }

    private static Object construct(String kind, Object... values) throws Exception {
        return made(Class.forName(BookieProtocol.class.getName() + "$" + kind), values);
    }

    private static Object made(Class<?> kind, Object... values) throws Exception {
        for (var constructor : kind.getDeclaredConstructors()) {
            if (constructor.getParameterCount() == values.length) {
                constructor.setAccessible(true);
                return constructor.newInstance(values);
            }
        }
        throw new IllegalStateException(kind.getName());
    }

    private static void say(String name, Object made) throws Exception {
        ByteBuf bytes = Unpooled.buffer();
        if (made instanceof ByteBufList) {
            ByteBufList list = (ByteBufList) made;
            for (int i = 0; i < list.size(); i++) {
                bytes.writeBytes(list.getBuffer(i));
            }
        } else if (made instanceof ByteBuf) {
            bytes.writeBytes((ByteBuf) made);
        } else if (made instanceof byte[]) {
            bytes.writeBytes((byte[]) made);
        } else {
            byte[] message = ((com.google.protobuf.MessageLite) made).toByteArray();
            Object framed = made instanceof BookkeeperProtocol.Request
                    ? new BookieProtoEncoding.RequestEnDecoderV3(REGISTRY).encode(made, ALLOCATOR)
                    : new BookieProtoEncoding.ResponseEnDecoderV3(REGISTRY).encode(made, ALLOCATOR);
            bytes.writeBytes((ByteBuf) framed);
            if (bytes.readableBytes() != message.length + 4) {
                throw new IllegalStateException(name);
            }
        }
        System.out.println(name + " " + ByteBufUtil.hexDump(bytes));
    }

    // ---- reading -------------------------------------------------------------------------------------------------

    private static void read(String what, byte[] stream) throws Exception {
        var frames = new LengthFieldBasedFrameDecoder(5 * 1024 * 1024, 0, 4, 0, 4);
        Object decoder = what.equals("requests")
                ? made(BookieProtoEncoding.RequestDecoder.class, REGISTRY)
                : made(BookieProtoEncoding.ResponseDecoder.class, REGISTRY, what.equals("answers2"), false);
        EmbeddedChannel channel = new EmbeddedChannel(frames, (ChannelHandler) decoder);
        List<String> words = new ArrayList<>();
        boolean isBroken = false;
        try {
            channel.writeInbound(Unpooled.wrappedBuffer(stream));
        } catch (Throwable error) {
            isBroken = true;
        }
        for (Object message = channel.readInbound(); message != null; message = channel.readInbound()) {
            words.add(described(message));
        }
        if (isBroken) {
            words.add("closed");
        }
        System.out.println("> " + String.join(" ", words));
    }

    private static String described(Object message) throws Exception {
        if (message instanceof com.google.protobuf.MessageLite) {
            return "v3:" + ByteBufUtil.hexDump(((com.google.protobuf.MessageLite) message).toByteArray());
        }
        List<String> fields = new ArrayList<>();
        for (Class<?> kind = message.getClass(); kind != Object.class; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (java.lang.reflect.Modifier.isStatic(field.getModifiers())
                        || field.getName().equals("recyclerHandle") || field.getName().equals("refCnt")) {
                    continue;
                }
                field.setAccessible(true);
                Object value = field.get(message);
                if (value instanceof byte[]) {
                    value = ByteBufUtil.hexDump((byte[]) value);
                } else if (value instanceof ByteBuf) {
                    value = ByteBufUtil.hexDump((ByteBuf) value);
                } else if (value instanceof ByteBufList) {
                    List<String> entries = new ArrayList<>();
                    for (int i = 0; i < ((ByteBufList) value).size(); i++) {
                        entries.add(ByteBufUtil.hexDump(((ByteBufList) value).getBuffer(i)));
                    }
                    value = String.join("+", entries);
                } else if (value instanceof com.google.protobuf.MessageLite) {
                    value = ByteBufUtil.hexDump(((com.google.protobuf.MessageLite) value).toByteArray());
                }
                if (value instanceof Number || value instanceof String) {
                    fields.add(field.getName() + "=" + value);
                }
            }
        }
        fields.sort(null);
        return "v2:" + String.join(",", fields);
    }

    private static void available(byte[] list) {
        AvailabilityOfEntriesOfLedger entries = new AvailabilityOfEntriesOfLedger(list);
        long[] ids = LongStream.range(0, 200).filter(entries::isEntryAvailable).toArray();
        System.out.println("> " + entries.getTotalNumOfAvailableEntries() + " " + Arrays.toString(ids).replace(" ", ""));
    }
}
