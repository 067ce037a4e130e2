"""Apache's own bookkeeper.conf, by its lines that are no comments: what a bookie makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga.app.configuration.bookie_config import BookieProcessConfig, load_bookie_config
from geminga.app.servers.autorecovery_process import load_autorecovery_config
from geminga.app.servers.bookie_server import check_bookie_start
from geminga.model.errors import ConfigurationError

STOCK = """
bookiePort=3181
journalDirectory=data/bookkeeper/journal
minUsableSizeForIndexFileCreation=1073741824
advertisedAddress=
allowLoopback=false
bookieDeathWatchInterval=1000
flushInterval=60000
useHostNameAsBookieID=false
gcWaitTime=900000
gcOverreplicatedLedgerWaitTime=86400000
numAddWorkerThreads=0
numReadWorkerThreads=8
numHighPriorityWorkerThreads=8
maxPendingReadRequestsPerThread=2500
maxPendingAddRequestsPerThread=10000
readWorkerThreadsThrottlingEnabled=true
enableBusyWait=false
forceAllowCompaction=true
tlsCertFilesRefreshDurationSeconds=300
auditorPeriodicBookieCheckInterval=86400
rereplicationEntryBatchSize=100
stickyReadSEnabled=true
reorderReadSequenceEnabled=true
openLedgerRereplicationGracePeriod=30000
autoRecoveryDaemonEnabled=true
lostBookieRecoveryDelay=0
useV2WireProtocol=true
reppDnsResolverClass=org.apache.pulsar.zookeeper.ZkBookieRackAffinityMapping
serverTcpNoDelay=true
nettyMaxFrameSizeBytes=5253120
journalFormatVersionToWrite=5
journalMaxSizeMB=2048
journalMaxBackups=5
journalPreAllocSizeMB=16
journalWriteBufferSizeKB=64
journalRemoveFromPageCache=true
journalWriteData=true
journalSyncData=true
journalAdaptiveGroupWrites=true
journalMaxGroupWaitMSec=1
journalBufferedWritesThreshold=524288
numJournalCallbackThreads=8
journalAlignmentSize=4096
journalFlushWhenQueueEmpty=false
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
ledgerDirectories=data/bookkeeper/ledgers
auditorPeriodicCheckInterval=604800
openFileLimit=0
fileInfoFormatVersionToWrite=0
pageLimit=0
zkLedgersRootPath=/ledgers
logSizeLimit=1073741824
entryLogFilePreallocationEnabled=true
flushEntrylogBytes=33554432
readBufferSizeBytes=4096
writeBufferSizeBytes=65536
compactionRate=1000
minorCompactionThreshold=0.2
minorCompactionInterval=3600
compactionMaxOutstandingRequests=100000
majorCompactionThreshold=0.5
majorCompactionInterval=86400
isThrottleByBytes=false
compactionRateByEntries=1000
compactionRateByBytes=1000000
statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider
prometheusStatsHttpPort=8000
readOnlyModeEnabled=true
diskCheckInterval=10000
metadataServiceUri=
zkServers=localhost:2181
zkTimeout=30000
zkEnableSecurity=false
httpServerEnabled=false
httpServerPort=8000
httpServerClass=org.apache.bookkeeper.http.vertx.VertxHttpServer
dbStorage_writeCacheMaxSizeMb=
dbStorage_readAheadCacheMaxSizeMb=
dbStorage_readAheadCacheBatchSize=1000
dbStorage_rocksDB_blockCacheSize=
dbStorage_rocksDB_writeBufferSizeMB=64
dbStorage_rocksDB_sstSizeInMB=64
dbStorage_rocksDB_blockSize=65536
dbStorage_rocksDB_bloomFilterBitsPerKey=10
dbStorage_rocksDB_numLevels=-1
dbStorage_rocksDB_numFilesInLevel0=4
dbStorage_rocksDB_maxSizeInLevel1MB=256
"""


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "bookkeeper.conf"
    path.write_text(STOCK)
    return str(path)


def started(conf: str, *changes: str) -> BookieProcessConfig:
    config = load_bookie_config([conf], {}, changes)
    check_bookie_start(config)
    return config


def test_apaches_file_starts_a_bookie_without_a_word(conf: str) -> None:
    config = started(conf)
    assert config.warnings == ()
    assert str(config.metadata) == "zk:localhost:2181"
    assert config.recovery is not None
    assert config.tls is config.http_tls is None
    listener = config.http()
    assert listener is not None
    # BookKeeper would listen everywhere; here nothing does that is not told to.
    assert (config.server.bind_address, listener) == ("127.0.0.1", ("127.0.0.1", 8000, "prometheusStatsHttpPort", None))
    found = load_autorecovery_config([conf], {}, [])
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("bindAddress=0.0.0.0", r"bindAddress=0\.0\.0\.0: whoever reaches this machine can read all entries"),
        ("prometheusStatsHttpAddress=0.0.0.0", r"prometheusStatsHttpAddress=0\.0\.0\.0: whoever .* read metrics"),
        ("zkEnableSecurity=true", "whoever reaches it could change what bookies are and hold"),
        ("tlsKeyStore=/k", "entries could be read on their way, for tlsProviderFactoryClass is not set"),
        ("bookieAuthProviderFactoryClass=x", "everyone would be served"),
        ("journalSyncData=perhaps", "expected true or false"),
    ],
)
def test_what_is_added_to_it_and_can_not_be_refuses_the_start(conf: str, change: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        started(conf, change)
