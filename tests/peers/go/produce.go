package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// isOneOf: the error is one of the client's named results, or its text holds one of the words.
func isOneOf(err error, words ...string) bool {
	if err == nil {
		return false
	}
	for _, w := range words {
		if strings.Contains(err.Error(), w) {
			return true
		}
	}
	return false
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(int64(n))).Read(b)
	return b
}

func init() {
	for _, batched := range []bool{false, true} {
		batched := batched
		add(fmt.Sprintf("every field of a message, batched %v", batched), func(t *T) {
			topic := t.topic()
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
			p := t.producer(pulsar.ProducerOptions{Topic: topic, Name: "named-" + topic, DisableBatching: !batched})
			event := time.UnixMilli(1700000000123)
			sequence := int64(41)
			before := time.Now().Add(-time.Second)
			id := t.send(p, &pulsar.ProducerMessage{
				Payload: []byte("payload"), Key: "kéy", OrderingKey: "order", EventTime: event, SequenceID: &sequence,
				Properties: map[string]string{"a": "1", "b": "", "ü": "ö"}, DisableReplication: true,
			})
			m := t.receive(c)
			equal(t, string(m.Payload()), "payload", "payload")
			equal(t, m.Key(), "kéy", "key")
			equal(t, m.OrderingKey(), "order", "ordering key")
			equal(t, m.EventTime().UnixMilli(), event.UnixMilli(), "event time")
			equal(t, m.Properties(), map[string]string{"a": "1", "b": "", "ü": "ö"}, "properties")
			equal(t, m.ProducerName(), "named-"+topic, "producer name")
			equal(t, m.Topic(), topic, "topic")
			equal(t, m.RedeliveryCount(), 0, "redelivery count")
			equal(t, m.ID().LedgerID(), id.LedgerID(), "ledger")
			equal(t, m.ID().EntryID(), id.EntryID(), "entry")
			// The client says 0 where the topic has no partitions.
			equal(t, m.ID().PartitionIdx(), int32(0), "partition")
			equal(t, p.LastSequenceID(), 41, "last sequence id")
			t.expect(m.PublishTime().After(before), "publish time %v", m.PublishTime())
			t.expect(!m.IsReplicated(), "is replicated")
			back, err := pulsar.DeserializeMessageID(m.ID().Serialize())
			t.no(err, "DeserializeMessageID")
			equal(t, back.String(), m.ID().String(), "message id")
			t.no(c.Ack(m), "Ack")
		})
	}
	names := map[pulsar.CompressionType]string{pulsar.NoCompression: "none", pulsar.LZ4: "LZ4", pulsar.ZLib: "ZLIB",
		pulsar.ZSTD: "ZSTD", pulsar.SNAPPY: "SNAPPY"}
	for kind, name := range names {
		for _, batched := range []bool{false, true} {
			kind, batched := kind, batched
			add(fmt.Sprintf("compression %s, batched %v", name, batched), func(t *T) {
				topic := t.topic()
				c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
				for _, level := range []pulsar.CompressionLevel{pulsar.Default, pulsar.Faster, pulsar.Better} {
					p := t.producer(pulsar.ProducerOptions{Topic: topic, CompressionType: kind, CompressionLevel: level,
						DisableBatching: !batched})
					big := strings.Repeat("compress me ", 5000)
					t.sendMany(p, big, 20)
					equal(t, t.receiveTexts(c, 20, true), texts(big, 0, 20), "what was received")
					t.send(p, &pulsar.ProducerMessage{Payload: noise(100000)})
					t.expect(bytes.Equal(t.receive(c).Payload(), noise(100000)), "noise came back changed")
				}
			})
		}
	}
	add("batches: by count, one entry each", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10,
			BatchingMaxPublishDelay: 30 * time.Second})
		ids := t.sendMany(p, "m", 30)
		equal(t, ids[0].BatchSize(), 10, "batch size")
		equal(t, ids[9].BatchIdx(), 9, "batch index")
		equal(t, ids[9].EntryID(), ids[0].EntryID(), "entry of the tenth")
		equal(t, ids[29].EntryID(), ids[0].EntryID()+2, "entry of the last")
		for i := 0; i < 30; i++ {
			m := t.receive(c)
			equal(t, m.ID().BatchIdx(), ids[i].BatchIdx(), "received batch index")
			equal(t, m.ID().BatchSize(), 10, "received batch size")
		}
	})
	add("batches: by size and by delay", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxSize: 1000, BatchingMaxPublishDelay: time.Second})
		for i := 0; i < 25; i++ {
			p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: noise(100)}, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		largest := int32(0)
		for i := 0; i < 25; i++ {
			m := t.receive(c)
			if m.ID().BatchSize() > largest {
				largest = m.ID().BatchSize()
			}
		}
		t.expect(largest >= 5 && largest <= 10, "largest batch has %d messages", largest)
	})
	add("batches by key, each key to one consumer of Key_Shared", func(t *T) {
		topic := t.topic()
		first := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared})
		second := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
			BatchingMaxPublishDelay: 200 * time.Millisecond})
		for i := 0; i < 200; i++ {
			p.SendAsync(ctx, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%20), Payload: []byte(fmt.Sprint(i))},
				func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		t.no(p.FlushWithCtx(ctx), "Flush")
		owner, last := map[string]int{}, map[string]int{}
		got := [2]int{}
		for who, c := range []pulsar.Consumer{first, second} {
			got[who] = drain(c, time.Second, func(m pulsar.Message) {
				before, known := owner[m.Key()]
				t.expect(!known || before == who, "key %s went to both", m.Key())
				owner[m.Key()] = who
				var n int
				fmt.Sscan(string(m.Payload()), &n)
				t.expect(n >= last[m.Key()], "key %s out of order", m.Key())
				last[m.Key()] = n
				t.no(c.Ack(m), "Ack")
			})
		}
		t.expect(got[0]+got[1] == 200 && got[0] > 0 && got[1] > 0, "received %v", got)
	})
	add("SendAsync: 20000 receipts in order", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, ReceiverQueueSize: 5000})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, MaxPendingMessages: 2000})
		var lock sync.Mutex
		next, wrong := 0, ""
		all := make(chan struct{})
		for i := 0; i < 20000; i++ {
			i := i
			p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i))},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					lock.Lock()
					defer lock.Unlock()
					if err != nil || i != next {
						wrong = fmt.Sprintf("receipt %d came as number %d, error %v", i, next, err)
					}
					if next++; next == 20000 {
						close(all)
					}
				})
		}
		<-all
		equal(t, wrong, "", "order")
		equal(t, t.receiveTexts(c, 20000, true), texts("m", 0, 20000), "received")
	})
	for _, chunk := range []uint{0, 100000} {
		chunk := chunk
		add(fmt.Sprintf("chunks of %d bytes (0: maxMessageSize)", chunk), func(t *T) {
			topic := t.topic()
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, AckWithResponse: true})
			p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true,
				ChunkMaxMessageSize: chunk})
			size := 12 << 20
			if chunk != 0 {
				size = 1 << 20
			}
			id := t.send(p, &pulsar.ProducerMessage{Payload: noise(size), Key: "k", Properties: map[string]string{"p": "q"}})
			small := t.send(p, &pulsar.ProducerMessage{Payload: []byte("small")})
			m := t.receive(c)
			t.expect(bytes.Equal(m.Payload(), noise(size)), "payload of %d bytes is another", len(m.Payload()))
			equal(t, m.Key()+m.Properties()["p"], "kq", "key and property")
			equal(t, m.ID().EntryID(), id.EntryID(), "entry of the last chunk")
			equal(t, small.EntryID(), id.EntryID()+1, "entry of the next message")
			t.no(c.Ack(m), "Ack")
			small2 := t.receive(c)
			t.no(c.Ack(small2), "Ack")
			t.eventually("everything acknowledged", 10*time.Second, func() bool {
				s := t.stats(topic)["subscriptions"].(map[string]any)["s"].(map[string]any)
				return s["msgBacklog"].(float64) == 0
			})
			r := t.reader(pulsar.ReaderOptions{Topic: topic})
			t.expect(bytes.Equal(t.next(r).Payload(), noise(size)), "a reader gets another message")
			t.no(r.Seek(m.ID()), "Seek")
			equal(t, string(t.next(r).Payload()), "small", "read after the first one")
		})
	}
	add("chunks of two producers mixed on a Shared subscription", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
		var all sync.WaitGroup
		for i := 0; i < 2; i++ {
			p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 1000})
			all.Add(1)
			go func() {
				for k := 0; k < 20; k++ {
					p.Send(ctx, &pulsar.ProducerMessage{Payload: noise(10000 + i*100 + k)})
				}
				all.Done()
			}()
		}
		all.Wait()
		seen := map[int]bool{}
		for i := 0; i < 40; i++ {
			m := t.receive(c)
			t.expect(bytes.Equal(m.Payload(), noise(len(m.Payload()))), "a message mixed of two")
			seen[len(m.Payload())] = true
			t.no(c.Ack(m), "Ack")
		}
		equal(t, len(seen), 40, "different messages")
	})
	add("a message above maxMessageSize is an error, the producer lives on", func(t *T) {
		p := t.plain(t.topic())
		_, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: noise(5<<20 + 1)})
		t.expect(errors.Is(err, pulsar.ErrMessageTooLarge), "error is %v", err)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("ok")})
		t.send(p, &pulsar.ProducerMessage{Payload: noise(5<<20 - 2000)})
	})
	add("delayed: DeliverAfter and DeliverAt, Shared waits, Exclusive does not", func(t *T) {
		topic := t.topic()
		shared := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
		exclusive := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "e"})
		p := t.producer(pulsar.ProducerOptions{Topic: topic})
		start := time.Now()
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("three"), DeliverAfter: 3 * time.Second})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("two"), DeliverAt: start.Add(2 * time.Second)})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("now")})
		equal(t, t.receiveTexts(exclusive, 3, true), []string{"three", "two", "now"}, "Exclusive")
		equal(t, string(t.receive(shared).Payload()), "now", "first")
		equal(t, string(t.receive(shared).Payload()), "two", "second")
		t.expect(time.Since(start) > 1900*time.Millisecond, "two came after %v", time.Since(start))
		equal(t, string(t.receive(shared).Payload()), "three", "third")
		t.expect(time.Since(start) > 2900*time.Millisecond && time.Since(start) < 6*time.Second, "three after %v", time.Since(start))
	})
	add("sequence ids: LastSequenceID of a producer made again", func(t *T) {
		topic := t.topic()
		o := pulsar.ProducerOptions{Topic: topic, Name: "again", DisableBatching: true}
		p := t.producer(o)
		equal(t, p.LastSequenceID(), -1, "last sequence id before anything")
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("a")})
		equal(t, p.LastSequenceID(), 0, "last sequence id after one")
		n := int64(100)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("b"), SequenceID: &n})
		equal(t, p.LastSequenceID(), 100, "last sequence id")
	})
	add("deduplication: repeated sequence ids are dropped", func(t *T) {
		ns := t.namespace()
		t.admin("POST", "namespaces/"+ns+"/deduplication", true)
		topic := "persistent://" + ns + "/t"
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		o := pulsar.ProducerOptions{Topic: topic, Name: "d", DisableBatching: true}
		p := t.producer(o)
		for _, n := range []int64{1, 2, 2, 1, 3} {
			n := n
			t.send(p, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), SequenceID: &n})
		}
		p.Close()
		// LastSequenceID of the next producer is -1 until its first message, whatever the broker told it.
		p = t.producer(o)
		for _, n := range []int64{3, 4} {
			n := n
			t.send(p, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(n)), SequenceID: &n})
		}
		equal(t, t.receiveTexts(c, 4, true), []string{"1", "2", "3", "4"}, "received")
		t.none(c, 500*time.Millisecond)
	})
	add("deduplication with batches", func(t *T) {
		ns := t.namespace()
		t.admin("POST", "namespaces/"+ns+"/deduplication", true)
		topic := "persistent://" + ns + "/t"
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		for round := 0; round < 2; round++ {
			p := t.producer(pulsar.ProducerOptions{Topic: topic, Name: "d", BatchingMaxMessages: 5, BatchingMaxPublishDelay: 10 * time.Second})
			for i := int64(0); i < 10; i++ {
				n := i + 1
				p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i)), SequenceID: &n},
					func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
			}
			t.no(p.FlushWithCtx(ctx), "Flush")
			// The client tells the first message of the last batch.
			equal(t, p.LastSequenceID(), 6, "last sequence id")
			p.Close()
		}
		equal(t, t.receiveTexts(c, 10, true), texts("m", 0, 10), "received")
		t.none(c, 500*time.Millisecond)
	})
	add("routing: round robin, one partition, by key with both hashes, by a router", func(t *T) {
		topic := t.topic()
		t.admin("PUT", path(topic)+"/partitions", 4)
		parts, err := t.client.TopicPartitions(topic)
		t.no(err, "TopicPartitions")
		equal(t, len(parts), 4, "partitions")
		equal(t, parts[3], topic+"-partition-3", "name of the last")
		used := func(p pulsar.Producer, key func(int) string) map[int32]int {
			out := map[int32]int{}
			for i := 0; i < 40; i++ {
				out[t.send(p, &pulsar.ProducerMessage{Payload: []byte("x"), Key: key(i)}).PartitionIdx()]++
			}
			return out
		}
		nothing := func(int) string { return "" }
		equal(t, len(used(t.plain(topic), nothing)), 4, "partitions used round robin")
		p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true,
			MessageRouter: func(_ *pulsar.ProducerMessage, m pulsar.TopicMetadata) int { return int(m.NumPartitions()) - 1 }})
		equal(t, used(p, nothing), map[int32]int{3: 40}, "partitions used by the router")
		p = t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, MessageRouter: pulsar.NewSinglePartitionRouter()})
		equal(t, len(used(p, nothing)), 1, "partitions used by the single router")
		for _, h := range []pulsar.HashingScheme{pulsar.JavaStringHash, pulsar.Murmur3_32Hash} {
			p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, HashingScheme: h})
			equal(t, len(used(p, func(int) string { return "one key" })), 1, "partitions used for a key")
		}
	})
	add("access modes: Exclusive refuses and is refused, WaitForExclusive waits", func(t *T) {
		topic := t.topic()
		make := func(m pulsar.ProducerAccessMode) (pulsar.Producer, error) {
			return t.tryProducer(pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: m, DisableBatching: true})
		}
		first, err := make(pulsar.ProducerAccessModeExclusive)
		t.no(err, "the first")
		_, err = make(pulsar.ProducerAccessModeExclusive)
		t.expect(isOneOf(err, "ProducerFenced"), "second Exclusive: %v", err)
		_, err = make(pulsar.ProducerAccessModeShared)
		t.expect(isOneOf(err, "ProducerBusy"), "Shared beside Exclusive: %v", err)
		came := new(pulsar.Producer)
		done := go_(func() error { p, e := make(pulsar.ProducerAccessModeWaitForExclusive); *came = p; return e })
		select {
		case e := <-done:
			t.failf("WaitForExclusive did not wait: %v", e)
		case <-time.After(time.Second):
		}
		t.send(first, &pulsar.ProducerMessage{Payload: []byte("a")})
		first.Close()
		select {
		case e := <-done:
			t.no(e, "WaitForExclusive")
		case <-time.After(10 * time.Second):
			t.failf("WaitForExclusive does not come")
		}
		t.send(*came, &pulsar.ProducerMessage{Payload: []byte("b")})
		(*came).Close()
		_, err = make(pulsar.ProducerAccessModeShared)
		t.no(err, "Shared after all")
		_, err = make(pulsar.ProducerAccessModeExclusive)
		t.expect(isOneOf(err, "ProducerFenced"), "Exclusive beside Shared: %v", err)
	})
	add("two producers of one name: the second is refused", func(t *T) {
		topic := t.topic()
		t.producer(pulsar.ProducerOptions{Topic: topic, Name: "same"})
		_, err := t.tryProducer(pulsar.ProducerOptions{Topic: topic, Name: "same"})
		t.expect(isOneOf(err, "ProducerBusy", "already connected"), "error: %v", err)
	})
	add("properties, names and addresses in the topic's stats", func(t *T) {
		topic := t.topic()
		t.producer(pulsar.ProducerOptions{Topic: topic, Name: "n", Properties: map[string]string{"pk": "pv"}})
		t.consumer(pulsar.ConsumerOptions{Topic: topic, Name: "cn", Properties: map[string]string{"ck": "cv"},
			SubscriptionProperties: map[string]string{"sk": "sv"}})
		s := t.stats(topic)
		p := s["publishers"].([]any)[0].(map[string]any)
		equal(t, p["producerName"], any("n"), "producer name")
		equal(t, p["metadata"], any(map[string]any{"pk": "pv"}), "producer properties")
		t.expect(strings.Contains(p["clientVersion"].(string), "Go"), "client version %v", p["clientVersion"])
		sub := s["subscriptions"].(map[string]any)["s"].(map[string]any)
		equal(t, sub["subscriptionProperties"], any(map[string]any{"sk": "sv"}), "subscription properties")
		c := sub["consumers"].([]any)[0].(map[string]any)
		equal(t, c["consumerName"], any("cn"), "consumer name")
		equal(t, c["metadata"], any(map[string]any{"ck": "cv"}), "consumer properties")
	})
	add("interceptors of producer and consumer", func(t *T) {
		topic := t.topic()
		pi, ci := &producerWatch{}, &consumerWatch{}
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Interceptors: pulsar.ConsumerInterceptors{ci},
			NackRedeliveryDelay: 200 * time.Millisecond, Type: pulsar.Shared})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, Interceptors: pulsar.ProducerInterceptors{pi}})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
		m := t.receive(c)
		equal(t, m.Properties(), map[string]string{"sent": "yes"}, "properties")
		c.Nack(m)
		m = t.receive(c)
		t.no(c.Ack(m), "Ack")
		t.eventually("all calls", 5*time.Second, func() bool {
			ci.Lock()
			defer ci.Unlock()
			pi.Lock()
			defer pi.Unlock()
			return ci.calls == "consume nack consume ack " && pi.calls == "before after "
		})
	})
	add("a full queue is an error when it may not block", func(t *T) {
		topic := t.topic()
		p := t.producer(pulsar.ProducerOptions{Topic: topic, MaxPendingMessages: 5, DisableBlockIfQueueFull: true,
			BatchingMaxPublishDelay: 2 * time.Second})
		results := make(chan error, 20)
		for i := 0; i < 20; i++ {
			p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte("x")},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, e error) { results <- e })
		}
		full, fine := 0, 0
		for i := 0; i < 20; i++ {
			if e := <-results; e == nil {
				fine++
			} else {
				t.expect(errors.Is(e, pulsar.ErrSendQueueIsFull), "error %v", e)
				full++
			}
		}
		t.expect(fine >= 5 && full >= 1, "%d sent, %d refused", fine, full)
	})
	add("the client's memory limit", func(t *T) {
		client := t.newClient(pulsar.ClientOptions{MemoryLimitBytes: 100 << 10})
		p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: t.topic(), DisableBlockIfQueueFull: true, DisableBatching: false,
			BatchingMaxPublishDelay: 2 * time.Second, BatchingMaxSize: 5 << 20})
		t.no(err, "CreateProducer")
		results := make(chan error, 20)
		for i := 0; i < 20; i++ {
			p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: noise(10 << 10)},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, e error) { results <- e })
		}
		refused := 0
		for i := 0; i < 20; i++ {
			if e := <-results; e != nil {
				t.expect(errors.Is(e, pulsar.ErrMemoryBufferIsFull), "error %v", e)
				refused++
			}
		}
		t.expect(refused >= 8, "%d refused", refused)
		_, err = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("after")})
		t.no(err, "Send after")
	})
	add("payloads without bytes", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		// In batches: the client's consumer drops an entry without bytes as damaged.
		p := t.producer(pulsar.ProducerOptions{Topic: topic})
		t.send(p, &pulsar.ProducerMessage{Key: "k", Payload: []byte{}})
		m := t.receive(c)
		equal(t, len(m.Payload()), 0, "bytes")
		equal(t, m.Key(), "k", "key")
	})
	add("the context of Send ends", func(t *T) {
		p := t.producer(pulsar.ProducerOptions{Topic: t.topic(), BatchingMaxPublishDelay: 3 * time.Second})
		x, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := p.Send(x, &pulsar.ProducerMessage{Payload: []byte("x")})
		t.expect(err == nil || errors.Is(err, context.DeadlineExceeded), "error %v", err)
	})
	add("index and time of the broker", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 5, BatchingMaxPublishDelay: time.Second})
		t.sendMany(p, "m", 10)
		for i := 0; i < 10; i++ {
			m := t.receive(c)
			t.expect(m.Index() != nil && m.BrokerPublishTime() != nil, "no index or no time")
			equal(t, *m.Index(), uint64(i), "index")
			t.expect(time.Since(*m.BrokerPublishTime()).Abs() < time.Minute, "time %v", m.BrokerPublishTime())
		}
	})
}

func go_(f func() error) chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

type producerWatch struct {
	sync.Mutex
	calls string
}

func (w *producerWatch) BeforeSend(_ pulsar.Producer, m *pulsar.ProducerMessage) {
	w.Lock()
	defer w.Unlock()
	w.calls += "before "
	m.Properties = map[string]string{"sent": "yes"}
}

func (w *producerWatch) OnSendAcknowledgement(pulsar.Producer, *pulsar.ProducerMessage, pulsar.MessageID) {
	w.Lock()
	defer w.Unlock()
	w.calls += "after "
}

type consumerWatch struct {
	sync.Mutex
	calls string
}

func (w *consumerWatch) note(s string) {
	w.Lock()
	defer w.Unlock()
	w.calls += s
}

func (w *consumerWatch) BeforeConsume(pulsar.ConsumerMessage)                   { w.note("consume ") }
func (w *consumerWatch) OnAcknowledge(pulsar.Consumer, pulsar.MessageID)        { w.note("ack ") }
func (w *consumerWatch) OnNegativeAcksSend(pulsar.Consumer, []pulsar.MessageID) { w.note("nack ") }
