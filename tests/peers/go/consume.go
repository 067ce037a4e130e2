package main

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func (t *T) backlog(topic, subscription string) float64 {
	return t.stats(topic)["subscriptions"].(map[string]any)[subscription].(map[string]any)["msgBacklog"].(float64)
}

func init() {
	add("Exclusive: a second consumer is refused", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		_, err := t.tryConsumer(pulsar.ConsumerOptions{Topic: topic})
		t.expect(isOneOf(err, "ConsumerBusy", "Exclusive"), "error %v", err)
		_, err = t.tryConsumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
		t.expect(isOneOf(err, "ConsumerBusy", "different type", "SubscriptionType"), "Shared beside Exclusive: %v", err)
		c.Close()
		t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	})
	add("Shared: spread over consumers, each message once", func(t *T) {
		topic := t.topic()
		cs := []pulsar.Consumer{}
		for i := 0; i < 3; i++ {
			cs = append(cs, t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, ReceiverQueueSize: 10}))
		}
		t.sendMany(t.plain(topic), "m", 300)
		seen := map[string]int{}
		var lock sync.Mutex
		var all sync.WaitGroup
		each := [3]int{}
		for i, c := range cs {
			all.Add(1)
			go func() {
				each[i] = drain(c, 2*time.Second, func(m pulsar.Message) {
					lock.Lock()
					seen[string(m.Payload())]++
					lock.Unlock()
					c.Ack(m)
				})
				all.Done()
			}()
		}
		all.Wait()
		equal(t, len(seen), 300, "different messages")
		equal(t, each[0]+each[1]+each[2], 300, "messages")
		t.expect(each[0] > 20 && each[1] > 20 && each[2] > 20, "spread %v", each)
	})
	add("Failover: one gets all, the next takes over, listeners are told", func(t *T) {
		topic := t.topic()
		cs, watches := []pulsar.Consumer{}, []*activeWatch{}
		for _, name := range []string{"a", "b"} {
			w := &activeWatch{}
			cs = append(cs, t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: name, EventListener: w}))
			watches = append(watches, w)
		}
		p := t.plain(topic)
		// A hash of names chooses; the choice falls a second after a better one has come.
		time.Sleep(1500 * time.Millisecond)
		t.eventually("one is active", 5*time.Second, func() bool { return watches[0].active() != watches[1].active() })
		active, other := 0, 1
		if watches[1].active() {
			active, other = 1, 0
		}
		t.sendMany(p, "m", 10)
		equal(t, t.receiveTexts(cs[active], 10, false), texts("m", 0, 10), "the active one's")
		for i := 0; i < 1; i++ {
			t.none(cs[other], 300*time.Millisecond)
		}
		cs[active].Close()
		equal(t, t.receiveTexts(cs[other], 10, true), texts("m", 0, 10), "after the change")
		t.eventually("the other is active", 5*time.Second, func() bool { return watches[other].active() })
	})
	add("Failover on partitions: spread over consumers", func(t *T) {
		topic := t.topic()
		t.admin("PUT", path(topic)+"/partitions", 4)
		a := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: "a"})
		b := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: "b"})
		p := t.plain(topic)
		time.Sleep(1500 * time.Millisecond)
		t.sendMany(p, "m", 40)
		x, y := drain(a, 2*time.Second, nil), drain(b, 2*time.Second, nil)
		t.expect(x == 20 && y == 20, "%d and %d", x, y)
	})
	add("Key_Shared AUTO_SPLIT: a key goes to one, in order, and moves when one leaves", func(t *T) {
		topic := t.topic()
		cs := []pulsar.Consumer{}
		for i := 0; i < 3; i++ {
			cs = append(cs, t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared}))
		}
		p := t.plain(topic)
		send := func(from, to int) {
			for i := from; i < to; i++ {
				t.send(p, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%30), Payload: []byte(fmt.Sprint(i))})
			}
		}
		send(0, 300)
		owner, last, got := map[string]int{}, map[string]int{}, 0
		take := func(who int) {
			got += drain(cs[who], time.Second, func(m pulsar.Message) {
				before, known := owner[m.Key()]
				t.expect(!known || before == who, "key %s went to two", m.Key())
				owner[m.Key()] = who
				var n int
				fmt.Sscan(string(m.Payload()), &n)
				t.expect(n >= last[m.Key()], "key %s: %d after %d", m.Key(), n, last[m.Key()])
				last[m.Key()] = n
				t.no(cs[who].Ack(m), "Ack")
			})
		}
		for who := range cs {
			take(who)
		}
		equal(t, got, 300, "messages")
		cs[0].Close()
		for key, who := range owner {
			if who == 0 {
				delete(owner, key)
			}
		}
		send(300, 600)
		take(1)
		take(2)
		equal(t, got, 600, "messages in the end")
	})
	add("Key_Shared STICKY: ranges, conflicts", func(t *T) {
		topic := t.topic()
		policy := func(r ...int) *pulsar.KeySharedPolicy {
			k, err := pulsar.NewKeySharedPolicySticky(r)
			t.no(err, "NewKeySharedPolicySticky")
			return k
		}
		low := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared, KeySharedPolicy: policy(0, 30000)})
		_, err := t.tryConsumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared, KeySharedPolicy: policy(20000, 40000)})
		t.expect(err != nil, "a range that overlaps was taken")
		_, err = t.tryConsumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared})
		t.expect(err != nil, "AUTO_SPLIT beside STICKY was taken")
		p := t.plain(topic)
		for i := 0; i < 100; i++ {
			t.send(p, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i), Payload: []byte("x")})
		}
		n := drain(low, time.Second, func(m pulsar.Message) { low.Ack(m) })
		t.expect(n > 0 && n < 100, "%d of 100 in less than half of the range", n)
		high := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared, KeySharedPolicy: policy(30001, 65535)})
		equal(t, n+drain(high, time.Second, func(m pulsar.Message) { high.Ack(m) }), 100, "of both")
	})
	add("Key_Shared: the ordering key decides before the key", func(t *T) {
		topic := t.topic()
		a := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared})
		b := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared})
		p := t.plain(topic)
		for i := 0; i < 50; i++ {
			t.send(p, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i), OrderingKey: "one", Payload: []byte("x")})
		}
		x, y := drain(a, time.Second, nil), drain(b, time.Second, nil)
		t.expect((x == 50 && y == 0) || (x == 0 && y == 50), "%d and %d", x, y)
	})
	for _, receipts := range []bool{false, true} {
		receipts := receipts
		add(fmt.Sprintf("acknowledging one by one and cumulatively, receipts %v", receipts), func(t *T) {
			topic := t.topic()
			o := pulsar.ConsumerOptions{Topic: topic, AckWithResponse: receipts}
			c := t.consumer(o)
			p := t.plain(topic)
			t.sendMany(p, "m", 20)
			ms := []pulsar.Message{}
			for i := 0; i < 20; i++ {
				ms = append(ms, t.receive(c))
			}
			for i := 0; i < 20; i += 2 {
				t.no(c.Ack(ms[i]), "Ack")
			}
			t.no(c.AckCumulative(ms[9]), "AckCumulative")
			t.no(c.AckIDCumulative(ms[11].ID()), "AckIDCumulative")
			c.Close()
			c = t.consumer(o)
			equal(t, t.receiveTexts(c, 4, true), []string{"m13", "m15", "m17", "m19"}, "what was left")
			t.none(c, 300*time.Millisecond)
		})
		add(fmt.Sprintf("acknowledging lists, receipts %v", receipts), func(t *T) {
			topic := t.topic()
			o := pulsar.ConsumerOptions{Topic: topic, AckWithResponse: receipts, Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true}
			c := t.consumer(o)
			t.sendMany(t.plain(topic), "m", 10)
			t.sendMany(t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second}), "b", 10)
			ids := []pulsar.MessageID{}
			for i := 0; i < 20; i++ {
				m := t.receive(c)
				if i%2 == 0 {
					ids = append(ids, m.ID())
				}
			}
			t.no(c.AckIDList(ids), "AckIDList")
			c.Close()
			c = t.consumer(o)
			equal(t, t.receiveTexts(c, 10, true), []string{"m1", "m3", "m5", "m7", "m9", "b1", "b3", "b5", "b7", "b9"}, "left")
		})
	}
	for _, index := range []bool{false, true} {
		index := index
		add(fmt.Sprintf("a batch acknowledged in part, by index %v", index), func(t *T) {
			topic := t.topic()
			o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, EnableBatchIndexAcknowledgment: index, AckWithResponse: true}
			c := t.consumer(o)
			p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
			t.sendMany(p, "m", 10)
			for i := 0; i < 10; i++ {
				if m := t.receive(c); i < 7 {
					t.no(c.Ack(m), "Ack")
				}
			}
			c.Close()
			c = t.consumer(o)
			want := texts("m", 0, 10)
			if index {
				want = texts("m", 7, 10)
			}
			equal(t, t.receiveTexts(c, len(want), true), want, "what comes again")
			t.eventually("no backlog", 5*time.Second, func() bool { return t.backlog(topic, "s") == 0 })
		})
		add(fmt.Sprintf("a batch acknowledged cumulatively in part, by index %v", index), func(t *T) {
			topic := t.topic()
			o := pulsar.ConsumerOptions{Topic: topic, EnableBatchIndexAcknowledgment: index, AckWithResponse: true}
			c := t.consumer(o)
			p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
			t.sendMany(p, "m", 20)
			var m pulsar.Message
			for i := 0; i <= 13; i++ {
				m = t.receive(c)
			}
			t.no(c.AckCumulative(m), "AckCumulative")
			c.Close()
			c = t.consumer(o)
			from := 10
			if index {
				from = 14
			}
			equal(t, t.receiveTexts(c, 20-from, true), texts("m", from, 20), "what comes again")
		})
	}
	add("negative acknowledgment: after its delay, counted", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: time.Second})
		p := t.plain(topic)
		t.sendMany(p, "m", 2)
		first, second := t.receive(c), t.receive(c)
		t.no(c.Ack(second), "Ack")
		for i := uint32(1); i <= 3; i++ {
			start := time.Now()
			c.Nack(first)
			first = t.receive(c)
			equal(t, string(first.Payload()), "m0", "payload")
			equal(t, first.RedeliveryCount(), i, "redelivery count")
			t.expect(time.Since(start) > 700*time.Millisecond && time.Since(start) < 4*time.Second, "came after %v", time.Since(start))
		}
		c.NackID(first.ID())
		equal(t, t.receive(c).RedeliveryCount(), 4, "redelivery count")
	})
	add("negative acknowledgment with a growing delay", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, NackBackoffPolicy: growing{}})
		p := t.plain(topic)
		t.sendMany(p, "m", 1)
		times := []time.Time{}
		for i := 0; i < 4; i++ {
			m := t.receive(c)
			times = append(times, time.Now())
			c.Nack(m)
		}
		a, b := times[1].Sub(times[0]), times[3].Sub(times[2])
		t.expect(b > a+500*time.Millisecond, "first %v, third %v", a, b)
	})
	for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.KeyShared} {
		kind := kind
		add(fmt.Sprintf("dead letter topic, type %d", kind), func(t *T) {
			topic, dead := t.topic(), t.topic()+"-dead"
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: kind, NackRedeliveryDelay: 100 * time.Millisecond,
				DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: dead, InitialSubscriptionName: "first"}})
			p := t.plain(topic)
			t.send(p, &pulsar.ProducerMessage{Payload: []byte("poison"), Key: "k", Properties: map[string]string{"a": "b"}})
			for i := 0; i < 3; i++ {
				m := t.receive(c)
				equal(t, m.RedeliveryCount(), uint32(i), "redelivery count")
				c.Nack(m)
			}
			d := t.consumer(pulsar.ConsumerOptions{Topic: dead, SubscriptionName: "first"})
			m := t.receive(d)
			equal(t, string(m.Payload()), "poison", "payload")
			equal(t, m.Key(), "k", "key")
			equal(t, m.Properties()["a"], "b", "property")
			equal(t, m.Properties()["REAL_TOPIC"], topic, "REAL_TOPIC")
			t.none(c, 500*time.Millisecond)
			t.eventually("no backlog", 5*time.Second, func() bool { return t.backlog(topic, "s") == 0 })
		})
	}
	add("retry topic: ReconsumeLater, then the dead letter topic", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, RetryEnable: true,
			DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2}})
		p := t.plain(topic)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("again"), Properties: map[string]string{"a": "b"}})
		for i := 0; i < 3; i++ {
			m := t.receive(c)
			equal(t, string(m.Payload()), "again", "payload")
			equal(t, m.Properties()["a"], "b", "property")
			if i > 0 {
				equal(t, m.Properties()["RECONSUMETIMES"], fmt.Sprint(i), "RECONSUMETIMES")
				equal(t, m.Topic(), topic+"-s-RETRY", "topic")
				equal(t, m.Properties()["c"], "d", "custom property")
			}
			c.ReconsumeLaterWithCustomProperties(m, map[string]string{"c": "d"}, time.Second)
		}
		d := t.consumer(pulsar.ConsumerOptions{Topic: topic + "-s-DLQ", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		equal(t, string(t.receive(d).Payload()), "again", "dead letter")
	})
	for _, queue := range []int{1, 2} {
		queue := queue
		add(fmt.Sprintf("receiver queue of %d", queue), func(t *T) {
			topic := t.topic()
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic, ReceiverQueueSize: queue})
			t.sendMany(t.plain(topic), "m", 50)
			t.sendMany(t.producer(pulsar.ProducerOptions{Topic: topic}), "b", 50)
			equal(t, t.receiveTexts(c, 100, true), append(texts("m", 0, 50), texts("b", 0, 50)...), "received")
		})
	}
	add("a queue of zero: no message waits at a consumer", func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, EnableZeroQueueConsumer: true}
		a, b := t.consumer(o), t.consumer(o)
		t.sendMany(t.plain(topic), "m", 10)
		equal(t, t.receiveTexts(a, 8, true), texts("m", 0, 8), "the first one's")
		equal(t, t.receiveTexts(b, 2, true), texts("m", 8, 10), "the second one's")
	})
	add("a queue that scales itself", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, EnableAutoScaledReceiverQueueSize: true})
		t.sendMany(t.producer(pulsar.ProducerOptions{Topic: topic}), "m", 3000)
		equal(t, t.receiveTexts(c, 3000, true), texts("m", 0, 3000), "received")
	})
	add("a channel of messages for several consumers", func(t *T) {
		ch := make(chan pulsar.ConsumerMessage, 10)
		seen := map[string]bool{}
		for i := 0; i < 3; i++ {
			topic := t.topic()
			t.consumer(pulsar.ConsumerOptions{Topic: topic, MessageChannel: ch})
			t.sendMany(t.plain(topic), fmt.Sprint(i, "-"), 20)
			for k := 0; k < 20; k++ {
				m := <-ch
				seen[string(m.Payload())] = true
				t.no(m.Consumer.Ack(m.Message), "Ack")
			}
		}
		equal(t, len(seen), 60, "messages")
	})
	add("unsubscribing: alone, beside another, forced", func(t *T) {
		topic := t.topic()
		names := func() string { return string(t.admin("GET", path(topic)+"/subscriptions", nil)) }
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}
		a := t.consumer(o)
		b := t.consumer(o)
		t.expect(a.Unsubscribe() != nil, "Unsubscribe beside another consumer was taken")
		b.Close()
		t.no(a.Unsubscribe(), "Unsubscribe")
		equal(t, strings.TrimSpace(names()), "[]", "subscriptions")
		a = t.consumer(o)
		b = t.consumer(o)
		t.no(a.UnsubscribeForce(), "UnsubscribeForce")
		b.Close()
	})
	add("seek: by id, to both ends, by time", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		ids := t.sendMany(p, "m", 10)
		time.Sleep(500 * time.Millisecond)
		middle := time.Now()
		time.Sleep(500 * time.Millisecond)
		t.sendMany(p, "n", 10)
		equal(t, len(t.receiveTexts(c, 20, true)), 20, "first pass")
		// The client goes on behind the message, as it does in readers.
		t.no(c.Seek(ids[4]), "Seek")
		equal(t, t.receiveTexts(c, 1, true), []string{"m5"}, "after Seek to the fifth")
		t.no(c.Seek(pulsar.NewMessageID(-1, -1, -1, 0)), "Seek earliest")
		equal(t, t.receiveTexts(c, 1, true), []string{"m0"}, "after Seek to the first")
		t.no(c.SeekByTime(middle), "SeekByTime")
		equal(t, t.receiveTexts(c, 10, true), texts("n", 0, 10), "after SeekByTime")
		t.no(c.Seek(pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)), "Seek latest")
		t.none(c, 500*time.Millisecond)
		t.sendMany(p, "o", 1)
		equal(t, t.receiveTexts(c, 1, true), []string{"o0"}, "after Seek to the last")
	})
	add("seek inside a batch, and its inclusive form", func(t *T) {
		topic := t.topic()
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
		ids := t.sendMany(p, "m", 20)
		for _, inclusive := range []bool{false, true} {
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: fmt.Sprint("s", inclusive), StartMessageIDInclusive: inclusive})
			t.no(c.Seek(ids[13]), "Seek")
			got := string(t.receive(c).Payload())
			want := "m14"
			if inclusive {
				want = "m13"
			}
			equal(t, got, want, fmt.Sprintf("first after Seek, inclusive %v", inclusive))
		}
	})
	add("a partitioned consumer seeks by time and tells last ids", func(t *T) {
		topic := t.topic()
		t.admin("PUT", path(topic)+"/partitions", 3)
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		start := time.Now()
		for i := 0; i < 30; i++ {
			t.send(p, &pulsar.ProducerMessage{Payload: []byte("x"), Key: fmt.Sprint(i)})
		}
		equal(t, len(t.receiveTexts(c, 30, true)), 30, "first")
		ids, err := c.GetLastMessageIDs()
		t.no(err, "GetLastMessageIDs")
		equal(t, len(ids), 3, "last ids")
		for _, id := range ids {
			t.expect(strings.HasPrefix(id.Topic(), topic+"-partition-"), "topic %s", id.Topic())
		}
		t.no(c.SeekByTime(start.Add(-time.Minute)), "SeekByTime")
		equal(t, len(t.receiveTexts(c, 30, true)), 30, "again")
	})
	add("the position a subscription begins at; a subscription stays where it is", func(t *T) {
		topic := t.topic()
		p := t.plain(topic)
		t.sendMany(p, "m", 5)
		e := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "e", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		l := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "l"})
		t.sendMany(p, "n", 1)
		equal(t, t.receiveTexts(l, 1, true), []string{"n0"}, "latest")
		equal(t, t.receiveTexts(e, 6, false), append(texts("m", 0, 5), "n0"), "earliest")
	})
	add("a non-durable subscription is gone with its consumer", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionMode: pulsar.NonDurable})
		t.sendMany(t.plain(topic), "m", 3)
		equal(t, t.receiveTexts(c, 3, true), texts("m", 0, 3), "received")
		c.Close()
		t.eventually("it is gone", 5*time.Second, func() bool {
			return strings.TrimSpace(string(t.admin("GET", path(topic)+"/subscriptions", nil))) == "[]"
		})
	})
	add("several topics; a pattern finds new topics", func(t *T) {
		ns := t.namespace()
		topics := []string{}
		for i := 0; i < 3; i++ {
			topics = append(topics, fmt.Sprintf("persistent://%s/t%d", ns, i))
			t.plain(topics[i])
		}
		m := t.consumer(pulsar.ConsumerOptions{Topics: topics, SubscriptionName: "several"})
		r := t.consumer(pulsar.ConsumerOptions{TopicsPattern: "persistent://" + ns + "/t.*", SubscriptionName: "pattern",
			AutoDiscoveryPeriod: time.Second, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
		for _, topic := range topics {
			t.sendMany(t.plain(topic), "m", 5)
		}
		equal(t, len(t.receiveTexts(m, 15, true)), 15, "several")
		equal(t, len(t.receiveTexts(r, 15, true)), 15, "pattern")
		t.sendMany(t.plain("persistent://"+ns+"/t-new"), "new", 5)
		t.sendMany(t.plain("persistent://"+ns+"/other"), "other", 5)
		equal(t, t.receiveTexts(r, 5, true), texts("new", 0, 5), "of the new topic")
		t.none(r, 1500*time.Millisecond)
	})
	add("partitions that are added are found by producer and consumer", func(t *T) {
		topic := t.topic()
		t.admin("PUT", path(topic)+"/partitions", 2)
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, AutoDiscoveryPeriod: time.Second})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, PartitionsAutoDiscoveryInterval: time.Second})
		t.admin("POST", path(topic)+"/partitions", 5)
		used := map[int32]bool{}
		t.eventually("five partitions are used", 20*time.Second, func() bool {
			used[t.send(p, &pulsar.ProducerMessage{Payload: []byte("x")}).PartitionIdx()] = true
			return len(used) == 5
		})
		got := map[int32]bool{}
		t.eventually("five partitions are received from", 20*time.Second, func() bool {
			got[t.receive(c).ID().PartitionIdx()] = true
			return len(got) == 5
		})
	})
	add("non-persistent topics", func(t *T) {
		topic := t.volatileTopic()
		p := t.plain(topic)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("nobody listens")})
		cs := []pulsar.Consumer{}
		for i, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared} {
			cs = append(cs, t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: kind, SubscriptionName: fmt.Sprint("s", i)}))
		}
		t.sendMany(p, "m", 20)
		for _, c := range cs {
			equal(t, t.receiveTexts(c, 20, true), texts("m", 0, 20), "received")
		}
	})
	add("pending ids of other topics, of closed consumers", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: true})
		t.sendMany(t.plain(topic), "m", 1)
		m := t.receive(c)
		t.no(c.Ack(m), "Ack")
		t.no(c.Ack(m), "Ack again")
		c.Close()
		c = t.consumer(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: true})
		t.none(c, 300*time.Millisecond)
	})
	add("skip, clear and reset by REST while a consumer is connected", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, ReceiverQueueSize: 1})
		ids := t.sendMany(t.plain(topic), "m", 20)
		equal(t, t.receiveTexts(c, 2, true), texts("m", 0, 2), "before")
		t.eventually("acknowledged", 5*time.Second, func() bool { return t.backlog(topic, "s") == 18 })
		t.admin("POST", path(topic)+"/subscription/s/skip_all", nil)
		t.eventually("no backlog", 5*time.Second, func() bool { return t.backlog(topic, "s") == 0 })
		t.admin("POST", path(topic)+"/subscription/s/resetcursor", map[string]any{"ledgerId": ids[5].LedgerID(), "entryId": ids[5].EntryID()})
		seen := map[string]bool{}
		t.eventually("all from the sixth on come", 15*time.Second, func() bool {
			m := t.receive(c)
			seen[string(m.Payload())] = true
			return seen["m5"] && seen["m19"]
		})
	})
}

type growing struct{}

func (growing) Next(n uint32) time.Duration {
	return 200*time.Millisecond + time.Duration(n)*500*time.Millisecond
}

type activeWatch struct {
	lock sync.Mutex
	is   bool
}

func (w *activeWatch) active() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.is
}

func (w *activeWatch) set(v bool) {
	w.lock.Lock()
	w.is = v
	w.lock.Unlock()
}

func (w *activeWatch) BecameActive(pulsar.Consumer, string, int32)   { w.set(true) }
func (w *activeWatch) BecameInactive(pulsar.Consumer, string, int32) { w.set(false) }
