import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerChecker;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerFragment;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.BookieClient;
import org.apache.bookkeeper.proto.BookieProtocol;
import org.apache.bookkeeper.proto.DataFormats;
import org.apache.bookkeeper.proto.checksum.DigestManager;

/**
 * Apache's ledger client in a cluster: {@code URI VERSION COMMAND...}, one line out for each command. The system property
 * {@code settings} may name a file of further settings.
 *
 * <p>{@code write:TAG:COUNT:close|leave} (ensemble 3, quorums 2), {@code read:ID}, {@code recover:ID}, {@code peek:ID}
 * (no recovery), {@code metadata:ID}, {@code fence-check:ID} (what a writer gets whose ledger was recovered),
 * {@code delete:ID}, {@code copies:ID} (recovers, then reads every entry from each bookie of its write set: the last
 * entry, the digest of all as for {@code read}, how many copies there are, or which one is not as the others),
 * {@code auditor} (who is elected), {@code decommission:BOOKIE} (which begins with
 * {@code triggerAudit} and ends when no ledger names it).
 */
public final class ApacheLedgers {
    private static final byte[] PASSWORD = new byte[0];

    private ApacheLedgers() {}

    public static void main(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        if (System.getProperty("settings") != null) {
            conf.loadConf(Path.of(System.getProperty("settings")).toUri().toURL());
        }
        conf.setMetadataServiceUri(arguments[0]);
        conf.setUseV2WireProtocol(arguments[1].equals("2"));
        try (BookKeeper client = new BookKeeper(conf)) {
            for (int i = 2; i < arguments.length; i++) {
                String[] words = arguments[i].split(":");
                String said;
                try {
                    said = run(client, words);
                } catch (BKException error) {
                    said = error.getClass().getSimpleName();
                }
                System.out.println("> " + words[0] + " " + said);
            }
        }
        System.exit(0);
    }

    private static String run(BookKeeper client, String[] words) throws Exception {
        switch (words[0]) {
            case "write":
                return write(client, words[1], Integer.parseInt(words[2]), words[3].equals("close"));
            case "fence-check":
                return fenceCheck(client, words[1]);
            case "delete":
                client.deleteLedger(Long.parseLong(words[1]));
                return "OK";
            case "auditor":
                return String.valueOf(new BookKeeperAdmin(client).getCurrentAuditor());
            case "decommission":
                new BookKeeperAdmin(client).decommissionBookie(BookieId.parse(words[1] + ":" + words[2]));
                return "OK";
            case "copies":
                return copies(client, Long.parseLong(words[1]));
            case "metadata":
                return metadata(client, Long.parseLong(words[1]));
            default:
                long ledger = Long.parseLong(words[1]);
                return words[0].equals("peek")
                        ? told(client.openLedgerNoRecovery(ledger, DigestType.CRC32C, PASSWORD))
                        : told(client.openLedger(ledger, DigestType.CRC32C, PASSWORD));
        }
    }

    private static String write(BookKeeper client, String tag, int count, boolean isClosed) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 2, 2, DigestType.CRC32C, PASSWORD);
        for (int i = 0; i < count; i++) {
            ledger.addEntry((tag + " " + i).getBytes(StandardCharsets.UTF_8));
        }
        if (isClosed) {
            ledger.close();
        }
        return Long.toString(ledger.getId());
    }

    /** A writer, another client that recovers its ledger, and the writer's next entry. */
    private static String fenceCheck(BookKeeper client, String tag) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 2, 2, DigestType.CRC32C, PASSWORD);
        ledger.addEntry(tag.getBytes(StandardCharsets.UTF_8));
        try (LedgerHandle other = client.openLedger(ledger.getId(), DigestType.CRC32C, PASSWORD)) {
            String found = other.getLastAddConfirmed() + " ";
            try {
                ledger.addEntry("late".getBytes(StandardCharsets.UTF_8));
                return found + "added";
            } catch (BKException error) {
                return found + error.getClass().getSimpleName();
            }
        }
    }

    private static String told(LedgerHandle ledger) throws Exception {
        long last = ledger.getLastAddConfirmed();
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        if (last >= 0) {
            Enumeration<LedgerEntry> entries = ledger.readEntries(0, last);
            while (entries.hasMoreElements()) {
                digest.update(entries.nextElement().getEntry());
                digest.update((byte) '\n');
            }
        }
        return last + " " + HexFormat.of().formatHex(digest.digest());
    }

    private static String copies(BookKeeper client, long id) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        LedgerChecker checker = new LedgerChecker(client);
        long copies = 0;
        try (LedgerHandle ledger = client.openLedger(id, DigestType.CRC32C, PASSWORD)) {
            CompletableFuture<Set<LedgerFragment>> lacking = new CompletableFuture<>();
            checker.checkLedger(ledger, (rc, found) -> lacking.complete(found), 100);
            if (!lacking.get(60, TimeUnit.SECONDS).isEmpty()) {
                return "lacks " + lacking.get();
            }
            LedgerMetadata metadata = ledger.getLedgerMetadata();
            DigestManager digests = DigestManager.instantiate(id, PASSWORD,
                    DataFormats.LedgerMetadataFormat.DigestType.CRC32C, UnpooledByteBufAllocator.DEFAULT, false);
            int size = metadata.getEnsembleSize();
            for (long entry = 0; entry <= ledger.getLastAddConfirmed(); entry++) {
                List<BookieId> ensemble = new TreeMap<>(metadata.getAllEnsembles()).floorEntry(entry).getValue();
                Set<ByteBuf> found = new HashSet<>();
                Set<BookieId> owners = new HashSet<>();
                for (int i = 0; i < metadata.getWriteQuorumSize(); i++) {
                    BookieId bookie = ensemble.get((int) ((entry + i) % size));
                    found.add(payload(checker.bookieClient, digests, bookie, id, entry));
                    owners.add(bookie);
                }
                copies += owners.size();
                if (found.size() != 1) {
                    return "entry " + entry + " is not the same on " + owners;
                }
                digest.update(ByteBufUtil.getBytes(found.iterator().next()));
                digest.update((byte) '\n');
            }
            return ledger.getLastAddConfirmed() + " " + HexFormat.of().formatHex(digest.digest()) + " " + copies;
        }
    }

    /** Of the copy that this bookie has; its digest is checked. */
    private static ByteBuf payload(BookieClient bookies, DigestManager digests, BookieId bookie, long id, long entry)
            throws Exception {
        CompletableFuture<ByteBuf> read = new CompletableFuture<>();
        bookies.readEntry(bookie, id, entry, (rc, ledger, number, content, context) -> {
            if (rc == BKException.Code.OK) {
                read.complete(Unpooled.copiedBuffer(content));
            } else {
                read.completeExceptionally(new Exception(bookie + " " + entry + " " + BKException.create(rc)));
            }
        }, null, BookieProtocol.FLAG_NONE);
        return digests.verifyDigestAndReturnData(entry, read.get(60, TimeUnit.SECONDS));
    }

    private static String metadata(BookKeeper client, long ledger) throws Exception {
        LedgerMetadata found =
                client.getLedgerManagerFactory().newLedgerManager().readLedgerMetadata(ledger).get().getValue();
        return found.getState() + " " + found.getEnsembleSize() + "/" + found.getWriteQuorumSize() + "/"
                + found.getAckQuorumSize() + " " + found.getDigestType() + " "
                + (found.isClosed() ? found.getLastEntryId() + " " + found.getLength() : "-");
    }
}
