import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.util.ReferenceCounted;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.LongStream;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.common.util.OrderedExecutor;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.proto.BookieClientImpl;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.DataFormats.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.util.ByteBufList;

/**
 * Apache's own bookie client makes every call there is of one bookie: {@code HOST PORT VERSION}, version 2 or 3.
 *
 * <p>Prints a line for each: name, outcome by BKException's name, what came.
 */
public final class BookieCalls {
    private static byte[] masterKey;
    private static BookieClientImpl client;
    private static BookieId bookie;
    private static boolean isV2;

    private BookieCalls() {}

    public static void main(String[] arguments) throws Exception {
        masterKey = DigestManager.generateMasterKey("secret".getBytes());
        isV2 = arguments[2].equals("2");
        ClientConfiguration conf = new ClientConfiguration();
        conf.setUseV2WireProtocol(isV2);
        EventLoopGroup group = new NioEventLoopGroup(1);
        OrderedExecutor executor = OrderedExecutor.newBuilder().name("calls").numThreads(1).build();
        ScheduledExecutorService scheduler = Executors.newSingleThreadScheduledExecutor();
        client = new BookieClientImpl(conf, group, PooledByteBufAllocator.DEFAULT, executor, scheduler,
                NullStatsLogger.INSTANCE, BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER);
        bookie = new BookieSocketAddress(arguments[0], Integer.parseInt(arguments[1])).toBookieId();
        try {
            long ledger = isV2 ? 2000 : 3000;
            calls(ledger);
        } finally {
            client.close();
            executor.shutdown();
            scheduler.shutdown();
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).await();
        }
        System.exit(0);
    }

    private static void calls(long ledger) throws Exception {
        for (int i = 0; i < 5; i++) {
            add("add", ledger, i, 0, "entry " + i);
        }
        add("add.large", ledger, 5, 0, "x".repeat(300_000));
        read("read", ledger, 2, 0, null);
        read("read.last", ledger, -1, 0, null);
        read("read.absent", ledger, 77, 0, null);
        read("read.no_ledger", ledger + 1, 0, 0, null);
        if (isV2) {
            batch("batch", ledger, 0, 3, 1 << 20);
            batch("batch.size", ledger, 0, 100, 200);
            batch("batch.all", ledger, 0, 0, 1 << 20);
            batch("batch.absent", ledger, 50, 2, 1 << 20);
        } else {
            poll("poll.over", ledger, 4, 300);
            poll("poll.known", ledger, 1, 5000);
            await("force", done -> client.forceLedger(bookie, ledger, (rc, id, b, c) -> done.accept(name(rc)), null));
        }
        DigestManager digest = digest(ledger);
        await("write_lac", done -> client.writeLac(bookie, ledger, masterKey, 4L, digest.computeDigestAndPackageForSendingLac(4),
                (rc, id, b, c) -> done.accept(name(rc)), null));
        await("read_lac", done -> client.readLac(bookie, ledger, (rc, id, lac, last, c) ->
                done.accept(name(rc) + " " + lac.readableBytes() + " " + last.readableBytes()), null));
        if (!isV2) {
            // A client of version 2 sends this over its connection in version 2, where no bookie can read it.
            System.out.println("> list " + client.getListOfEntriesOfLedger(bookie, ledger).thenApply(list ->
                    list.getTotalNumOfAvailableEntries() + " "
                            + LongStream.range(0, 100).filter(list::isEntryAvailable).boxed().toList())
                    .get(20, TimeUnit.SECONDS));
        }
        await("info", done -> client.getBookieInfo(bookie, 3, (rc, info, c) -> done.accept(
                name(rc) + " " + (info.getTotalDiskSpace() >= info.getFreeDiskSpace() && info.getFreeDiskSpace() > 0)),
                null));
        read("fence", ledger, -1, BookieProtocol.FLAG_DO_FENCING, masterKey);
        add("add.fenced", ledger, 6, 0, "late");
        add("add.recovery", ledger, 6, BookieProtocol.FLAG_RECOVERY_ADD, "recovered");
        read("fence.wrong_key", ledger, -1, BookieProtocol.FLAG_DO_FENCING, new byte[20]);
        read("fence.unknown", ledger + 7, -1, BookieProtocol.FLAG_DO_FENCING, masterKey);
        add("add.fenced_unknown", ledger + 7, 0, 0, "late");
    }

    private static DigestManager digest(long ledger) throws Exception {
        return DigestManager.instantiate(
                ledger, "secret".getBytes(), DigestType.CRC32C, PooledByteBufAllocator.DEFAULT, isV2);
    }

    private static void add(String what, long ledger, long entry, int options, String payload) throws Exception {
        ReferenceCounted made = digest(ledger).computeDigestAndPackageForSending(
                entry, entry - 1, payload.length(), Unpooled.wrappedBuffer(payload.getBytes()), masterKey, options);
        await(what, done -> client.addEntry(bookie, ledger, masterKey, entry, made,
                (rc, id, entryId, b, c) -> done.accept(name(rc) + " " + entryId), null, options, false, WriteFlag.NONE));
    }

    private static void read(String what, long ledger, long entry, int flags, byte[] key) throws Exception {
        await(what, done -> client.readEntry(bookie, ledger, entry, (rc, id, entryId, buffer, c) ->
                done.accept(name(rc) + " " + entryId + " " + payload(ledger, entryId, buffer)), null, flags, key));
    }

    private static void batch(String what, long ledger, long entry, int count, long size) throws Exception {
        await(what, done -> client.batchReadEntries(bookie, ledger, entry, count, size, (rc, id, start, list, c) -> {
            List<String> entries = new ArrayList<>();
            for (int i = 0; list != null && i < list.size(); i++) {
                entries.add(payload(ledger, start + i, list.getBuffer(i)));
            }
            done.accept(name(rc) + " " + String.join(" ", entries));
        }, null, 0));
    }

    private static void poll(String what, long ledger, long previous, long timeout) throws Exception {
        await(what, done -> client.readEntryWaitForLACUpdate(bookie, ledger, -1, previous, timeout, true,
                (rc, id, entryId, buffer, c) ->
                        done.accept(name(rc) + " " + entryId + " " + payload(ledger, entryId, buffer)), null));
    }

    private static String payload(long ledger, long entry, ByteBuf buffer) {
        if (buffer == null || !buffer.isReadable()) {
            return "-";
        }
        try {
            ByteBuf found = entry < 0
                    ? buffer.slice(buffer.readerIndex() + 36, buffer.readableBytes() - 36)
                    : digest(ledger).verifyDigestAndReturnData(entry, buffer.slice());
            String text = found.toString(java.nio.charset.StandardCharsets.UTF_8).replace(' ', '_');
            return text.length() > 40 ? text.length() + "_bytes" : text;
        } catch (Exception error) {
            return error.toString();
        }
    }

    private interface Call {
        void make(Consumer<String> done) throws Exception;
    }

    private static void await(String what, Call call) throws Exception {
        CompletableFuture<String> answer = new CompletableFuture<>();
        call.make(answer::complete);
        System.out.println("> " + what + " " + answer.get(20, TimeUnit.SECONDS));
    }

    private static String name(int rc) {
        return rc == BKException.Code.OK ? "OK" : BKException.create(rc).getClass().getSimpleName();
    }
}
