package main

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// transacting adds a check whose client has transactions.
func transacting(name string, isAlone bool, run func(*T)) {
	checks = append(checks, check{"transactions: " + name, isAlone, func(t *T) {
		t.client = t.newClient(pulsar.ClientOptions{EnableTransaction: true})
		run(t)
	}})
}

func (t *T) begin(timeout time.Duration) pulsar.Transaction {
	txn, err := t.client.NewTransaction(timeout)
	t.no(err, "NewTransaction")
	equal(t, txn.GetState(), pulsar.TxnOpen, "state")
	return txn
}

func (t *T) end(txn pulsar.Transaction, commit bool) {
	if commit {
		t.no(txn.Commit(ctx), "Commit")
		equal(t, txn.GetState(), pulsar.TxnCommitted, "state")
	} else {
		t.no(txn.Abort(ctx), "Abort")
		equal(t, txn.GetState(), pulsar.TxnAborted, "state")
	}
}

// sendIn sends texts prefix(from) .. prefix(to-1) in a transaction and waits for their receipts.
func (t *T) sendIn(txn pulsar.Transaction, p pulsar.Producer, prefix string, from, to int) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, to-from)
	errs := make(chan error, to-from)
	for i := from; i < to; i++ {
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(prefix, i)), Key: fmt.Sprint("k", i%20), Transaction: txn},
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				ids[i-from] = id
				errs <- err
			})
	}
	t.no(p.FlushWithCtx(ctx), "Flush")
	for i := from; i < to; i++ {
		t.no(<-errs, "SendAsync")
	}
	return ids
}

func (t *T) batches(topic string, size uint) pulsar.Producer {
	return t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: size, BatchingMaxPublishDelay: time.Second})
}

func (t *T) take(c pulsar.Consumer, n int) []pulsar.Message {
	out := []pulsar.Message{}
	for i := 0; i < n; i++ {
		out = append(out, t.receive(c))
	}
	return out
}

func (t *T) ackIn(txn pulsar.Transaction, c pulsar.Consumer, messages ...pulsar.Message) {
	for _, m := range messages {
		t.no(c.AckWithTxn(m, txn), "AckWithTxn")
	}
}

func payloads(messages []pulsar.Message) []string {
	out := []string{}
	for _, m := range messages {
		out = append(out, string(m.Payload()))
	}
	return sorted(out)
}

// deduplicated makes a namespace with deduplication, and gives the beginning of its topics' names.
func (t *T) deduplicated() string {
	ns := t.retaining()
	t.admin("POST", "namespaces/"+ns+"/deduplication", true)
	return "persistent://" + ns + "/"
}

// transfer moves numbers from one topic to another in transactions while disturb runs: each arrives once.
func (t *T) transfer(batched bool, disturb func(moved func() int, in, out string)) {
	const total = 300
	base := t.deduplicated()
	in, out := base+"in", base+"out"
	c := t.consumer(pulsar.ConsumerOptions{Topic: in, Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true, NackRedeliveryDelay: 200 * time.Millisecond})
	if batched {
		t.sendMany(t.batches(in, 10), "m", total)
	} else {
		t.sendMany(t.plain(in), "m", total)
	}
	p := t.producer(pulsar.ProducerOptions{Topic: out, DisableBatching: !batched, SendTimeout: -1, BatchingMaxPublishDelay: 5 * time.Millisecond})
	var lock sync.Mutex
	count := 0
	moved := func() int { lock.Lock(); defer lock.Unlock(); return count }
	disturbed := make(chan struct{})
	go func() {
		// What fails in there is seen as a transfer that does not end in time.
		defer func() { recover(); close(disturbed) }()
		disturb(moved, in, out)
	}()
	isDisturbed := false
	deadline := time.Now().Add(150 * time.Second)
	// Seconds: what a lost transaction holds comes again after its time-out.
	for quiet := 0; quiet < 13 || !isDisturbed; {
		t.expect(time.Now().Before(deadline), "moved %d of %d in time", moved(), total)
		held := []pulsar.Message{}
		for len(held) < 10 || !endsBatch(held[len(held)-1]) {
			x, cancel := contextFor(time.Second)
			m, err := c.Receive(x)
			cancel()
			if err != nil {
				break
			}
			held = append(held, m)
		}
		select {
		case <-disturbed:
			isDisturbed = true
		default:
		}
		if len(held) == 0 {
			quiet++
			continue
		}
		quiet = 0
		if err := move(t, p, c, held); err != nil {
			for _, m := range held {
				c.Nack(m)
			}
			continue
		}
		lock.Lock()
		count += len(held)
		lock.Unlock()
	}
	got := []string{}
	// Only now: the client keeps what it was sent before a reconnect, and gets it again.
	d := t.consumer(pulsar.ConsumerOptions{Topic: out, SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	drain(d, 3*time.Second, func(m pulsar.Message) { got = append(got, string(m.Payload())); d.Ack(m) })
	equal(t, sorted(got), sorted(texts("m", 0, total)), "moved")
	t.eventually("no backlog", 15*time.Second, func() bool { return t.backlog(in, "s") == 0 })
}

// endsBatch: the client can not divide a batch between transactions (see below).
func endsBatch(m pulsar.Message) bool {
	return m.ID().BatchIdx() < 0 || m.ID().BatchIdx() == m.ID().BatchSize()-1
}

// move does a transaction; it is aborted if something of it fails.
func move(t *T, p pulsar.Producer, c pulsar.Consumer, held []pulsar.Message) error {
	txn, err := t.client.NewTransaction(10 * time.Second)
	if err != nil {
		return err
	}
	errs := make(chan error, len(held))
	for _, m := range held {
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: m.Payload(), Transaction: txn},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { errs <- err })
	}
	for _, m := range held {
		if err = c.AckWithTxn(m, txn); err != nil {
			break
		}
	}
	for range held {
		if e := <-errs; err == nil {
			err = e
		}
	}
	if err == nil {
		return txn.Commit(ctx)
	}
	txn.Abort(ctx)
	return err
}

func init() {
	for _, batched := range []bool{false, true} {
		for _, partitions := range []int{0, 3} {
			transacting(fmt.Sprintf("a commit shows, an abort hides; batched %v, partitions %d", batched, partitions), false, func(t *T) {
				topic := t.topic()
				if partitions > 0 {
					t.admin("PUT", path(topic)+"/partitions", partitions)
				}
				c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
				p := t.plain(topic)
				if batched {
					p = t.batches(topic, 10)
				}
				for _, commit := range []bool{false, true} {
					txn := t.begin(time.Minute)
					t.sendIn(txn, p, map[bool]string{false: "a", true: "c"}[commit], 0, 50)
					t.none(c, 400*time.Millisecond)
					t.end(txn, commit)
				}
				equal(t, sorted(t.receiveTexts(c, 50, true)), sorted(texts("c", 0, 50)), "received")
				// Not with the producer of batches: the client sends them under the last transaction's id, and they are refused.
				t.sendMany(t.plain(topic), "plain", 3)
				equal(t, sorted(t.receiveTexts(c, 3, true)), texts("plain", 0, 3), "plain ones behind them")
			})
		}
	}
	for name, kind := range subscriptionTypes {
		for _, batched := range []bool{false, true} {
			transacting(fmt.Sprintf("acknowledge one by one, %s, batched %v", name, batched), false, func(t *T) {
				topic := t.topic()
				o := pulsar.ConsumerOptions{Topic: topic, Type: kind, EnableBatchIndexAcknowledgment: true}
				c := t.consumer(o)
				if batched {
					t.sendMany(t.batches(topic, 10), "m", 20)
				} else {
					t.sendMany(t.plain(topic), "m", 20)
				}
				all := t.take(c, 20)
				txn := t.begin(time.Minute)
				t.ackIn(txn, c, all[:13]...)
				t.end(txn, false)
				c.Close()
				c = t.consumer(o)
				all = t.take(c, 20)
				equal(t, payloads(all), sorted(texts("m", 0, 20)), "after the abort")
				txn = t.begin(time.Minute)
				want := []string{}
				for i, m := range all {
					if i%3 == 0 {
						want = append(want, string(m.Payload()))
					} else {
						t.ackIn(txn, c, m)
					}
				}
				t.end(txn, true)
				c.Close()
				c = t.consumer(o)
				equal(t, sorted(t.receiveTexts(c, len(want), true)), sorted(want), "after the commit")
				t.none(c, 400*time.Millisecond)
			})
		}
	}
	// The client names, with each message of a batch, all that it acknowledged of the batch before: in another transaction,
	// too. That these are acknowledged already is a conflict, here as on Apache's broker.
	transacting("parts of a batch in one transaction after another are refused", false, func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true}
		c := t.consumer(o)
		t.sendMany(t.batches(topic, 10), "m", 10)
		all := t.take(c, 10)
		txn := t.begin(time.Minute)
		t.ackIn(txn, c, all[0])
		t.end(txn, true)
		err := c.AckWithTxn(all[4], t.begin(time.Second))
		t.expect(isOneOf(err, "Conflict"), "error %v", err)
		c.Close()
		equal(t, sorted(t.receiveTexts(t.consumer(o), 9, true)), texts("m", 1, 10), "left")
	})
	transacting("several topics, and what is consumed, in one", false, func(t *T) {
		in, one, two := t.topic(), t.topic(), t.topic()
		t.admin("PUT", path(two)+"/partitions", 3)
		o := pulsar.ConsumerOptions{Topic: in, Type: pulsar.Shared}
		c, d, e := t.consumer(o), t.consumer(pulsar.ConsumerOptions{Topic: one}), t.consumer(pulsar.ConsumerOptions{Topic: two})
		p, q := t.plain(one), t.plain(two)
		t.sendMany(t.plain(in), "m", 10)
		for _, commit := range []bool{false, true} {
			all := t.take(c, 10)
			txn := t.begin(time.Minute)
			t.sendIn(txn, p, "x", 0, 10)
			t.sendIn(txn, q, "y", 0, 10)
			t.ackIn(txn, c, all...)
			t.none(d, 200*time.Millisecond)
			t.none(e, 200*time.Millisecond)
			t.end(txn, commit)
		}
		equal(t, sorted(t.receiveTexts(d, 10, true)), texts("x", 0, 10), "of the first")
		equal(t, sorted(t.receiveTexts(e, 10, true)), texts("y", 0, 10), "of the second")
		t.none(d, 300*time.Millisecond)
		c.Close()
		t.none(t.consumer(o), 300*time.Millisecond)
	})
	transacting("plain messages wait behind an open one; readers", false, func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		t.sendMany(p, "before", 1)
		first, second := t.begin(time.Minute), t.begin(time.Minute)
		t.sendIn(first, p, "first", 0, 3)
		t.sendIn(second, p, "second", 0, 3)
		t.sendMany(p, "plain", 3)
		r := t.reader(pulsar.ReaderOptions{Topic: topic})
		equal(t, t.receiveTexts(c, 1, true), []string{"before0"}, "before them")
		equal(t, string(t.next(r).Payload()), "before0", "read before them")
		t.expect(!r.HasNext(), "HasNext while they are open")
		t.end(second, true)
		t.none(c, 300*time.Millisecond)
		t.expect(!r.HasNext(), "HasNext while the first is open")
		t.end(first, false)
		want := append(texts("second", 0, 3), texts("plain", 0, 3)...)
		equal(t, t.receiveTexts(c, 6, true), want, "behind them")
		got := []string{}
		for r.HasNext() {
			got = append(got, string(t.next(r).Payload()))
		}
		equal(t, got, want, "read behind them")
	})
	transacting("two transactions, one message; one that is acknowledged already", false, func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, AckWithResponse: true}
		c := t.consumer(o)
		t.sendMany(t.plain(topic), "m", 6)
		all := t.take(c, 6)
		one, two := t.begin(time.Minute), t.begin(time.Minute)
		t.ackIn(one, c, all[:3]...)
		err := c.AckWithTxn(all[2], two)
		t.expect(isOneOf(err, "Conflict"), "error %v", err)
		// The client lets no transaction be ended of which a part failed: it times out.
		t.expect(two.Commit(ctx) != nil, "committed")
		t.end(one, true)
		t.no(c.Ack(all[3]), "Ack")
		for _, i := range []int{1, 3} {
			err = c.AckWithTxn(all[i], t.begin(time.Second))
			t.expect(isOneOf(err, "Conflict"), "of what is acknowledged: %v", err)
		}
		three := t.begin(time.Minute)
		t.ackIn(three, c, all[4:]...)
		t.end(three, true)
		t.eventually("no backlog", 10*time.Second, func() bool { return t.backlog(topic, "s") == 0 })
	})
	transacting("what is over takes nothing more, and is not ended twice", false, func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		t.sendMany(p, "m", 2)
		m := t.receive(c)
		for _, commit := range []bool{false, true} {
			txn := t.begin(time.Minute)
			t.sendIn(txn, p, map[bool]string{false: "a", true: "c"}[commit], 0, 1)
			t.end(txn, commit)
			t.expect(txn.Commit(ctx) != nil, "Commit a second time")
			t.expect(txn.Abort(ctx) != nil, "Abort a second time")
			_, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("late"), Transaction: txn})
			t.expect(err != nil, "Send after the end")
			t.expect(c.AckWithTxn(m, txn) != nil, "AckWithTxn after the end")
		}
		t.no(c.Ack(m), "Ack")
		equal(t, t.receiveTexts(c, 2, true), []string{"m1", "c0"}, "received")
		t.none(c, 300*time.Millisecond)
	})
	transacting("time-out: aborted by the broker, its topic goes on", false, func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}
		c := t.consumer(o)
		p := t.plain(topic)
		t.sendMany(p, "m", 1)
		m := t.receive(c)
		start := time.Now()
		txn := t.begin(3 * time.Second)
		t.sendIn(txn, p, "t", 0, 3)
		t.ackIn(txn, c, m)
		t.sendMany(p, "n", 3)
		equal(t, sorted(t.receiveTexts(c, 4, true)), []string{"m0", "n0", "n1", "n2"}, "behind it")
		took := time.Since(start)
		t.expect(took > 2500*time.Millisecond && took < 15*time.Second, "held back for %v", took)
		t.eventually("the client knows", 5*time.Second, func() bool { return txn.GetState() == pulsar.TxnTimeout })
		t.expect(txn.Commit(ctx) != nil, "committed")
		_, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte("late"), Transaction: txn})
		t.expect(err != nil, "Send after the time-out")
		t.none(c, 300*time.Millisecond)
	})
	transacting("a client that goes with open ones: they time out", false, func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		gone := t.newClient(pulsar.ClientOptions{EnableTransaction: true})
		txn, err := gone.NewTransaction(3 * time.Second)
		t.no(err, "NewTransaction")
		p, err := gone.CreateProducer(pulsar.ProducerOptions{Topic: topic})
		t.no(err, "CreateProducer")
		t.sendIn(txn, p, "lost", 0, 5)
		gone.Close()
		t.sendMany(t.plain(topic), "n", 2)
		equal(t, t.receiveTexts(c, 2, true), texts("n", 0, 2), "received")
	})
	transacting("chunks: sent, and acknowledged", false, func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}
		c := t.consumer(o)
		p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 50_000})
		large := noise(700_000)
		for _, commit := range []bool{false, true} {
			txn := t.begin(time.Minute)
			t.send(p, &pulsar.ProducerMessage{Payload: large, Transaction: txn})
			t.none(c, 300*time.Millisecond)
			t.end(txn, commit)
		}
		m := t.receive(c)
		t.expect(bytes.Equal(m.Payload(), large), "payload is another: %d bytes", len(m.Payload()))
		txn := t.begin(time.Minute)
		t.ackIn(txn, c, m)
		t.end(txn, true)
		t.eventually("no backlog", 10*time.Second, func() bool { return t.backlog(topic, "s") == 0 })
		c.Close()
		t.none(t.consumer(o), 300*time.Millisecond)
	})
	transacting("compression, large messages, delays", false, func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
		large := noise(1_000_000)
		for _, kind := range []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD} {
			p := t.producer(pulsar.ProducerOptions{Topic: topic, CompressionType: kind})
			txn := t.begin(time.Minute)
			t.send(p, &pulsar.ProducerMessage{Payload: large, Transaction: txn})
			t.end(txn, true)
			m := t.receive(c)
			t.expect(bytes.Equal(m.Payload(), large), "payload is another")
			t.no(c.Ack(m), "Ack")
		}
		p := t.plain(topic)
		txn := t.begin(time.Minute)
		start := time.Now()
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("late"), DeliverAfter: 3 * time.Second, Transaction: txn})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("now"), Transaction: txn})
		t.end(txn, true)
		equal(t, t.receiveTexts(c, 2, true), []string{"now", "late"}, "received")
		t.expect(time.Since(start) > 2900*time.Millisecond, "it came too early")
	})
	transacting("1,000 small ones", false, func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		var all sync.WaitGroup
		errs := make(chan error, 1000)
		for worker := 0; worker < 20; worker++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := worker; i < 1000; i += 20 {
					txn, err := t.client.NewTransaction(time.Minute)
					if err == nil {
						_, err = p.Send(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i)), Transaction: txn})
					}
					if err == nil && i%5 == 0 {
						err = txn.Abort(ctx)
					} else if err == nil {
						err = txn.Commit(ctx)
					}
					errs <- err
				}
			}()
		}
		all.Wait()
		want := []string{}
		for i := 0; i < 1000; i++ {
			t.no(<-errs, "a transaction")
			if i%5 != 0 {
				want = append(want, fmt.Sprint("m", i))
			}
		}
		equal(t, sorted(t.receiveTexts(c, 800, true)), sorted(want), "received")
		t.none(c, 300*time.Millisecond)
	})
	for _, how := range []string{"unload", "kill"} {
		transacting("open ones outlive it: "+how, how == "kill", func(t *T) {
			base := t.deduplicated()
			topic, acked := base+"t", base+"acked"
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
			o := pulsar.ConsumerOptions{Topic: acked, Type: pulsar.Shared}
			d := t.consumer(o)
			p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true, SendTimeout: -1})
			t.sendMany(t.plain(acked), "a", 10)
			all := t.take(d, 10)
			commits, aborts := t.begin(2*time.Minute), t.begin(2*time.Minute)
			t.sendIn(commits, p, "c", 0, 5)
			t.sendIn(aborts, p, "x", 0, 5)
			t.ackIn(commits, d, all[:4]...)
			t.ackIn(aborts, d, all[4:6]...)
			if how == "kill" {
				order("kill")
				order("start")
			} else {
				t.admin("PUT", path(topic)+"/unload", nil)
				t.admin("PUT", path(acked)+"/unload", nil)
			}
			t.sendIn(commits, p, "c", 5, 10)
			t.sendIn(aborts, p, "x", 5, 10)
			t.none(c, 500*time.Millisecond)
			equal(t, sorted(t.receiveTexts(d, 4, false)), texts("a", 6, 10), "held by none")
			t.end(aborts, false)
			t.end(commits, true)
			equal(t, t.receiveTexts(c, 10, true), texts("c", 0, 10), "committed")
			t.none(c, 300*time.Millisecond)
			d.Close()
			equal(t, sorted(t.receiveTexts(t.consumer(o), 6, true)), texts("a", 4, 10), "to be acknowledged")
		})
	}
	for _, batched := range []bool{false, true} {
		more := func(t *T, moved func() int) {
			before := moved()
			t.eventually("more moved", 60*time.Second, func() bool { return moved() > min(before+40, 299) })
		}
		transacting(fmt.Sprintf("exactly once while topics are unloaded, batched %v", batched), true, func(t *T) {
			t.transfer(batched, func(moved func() int, in, out string) {
				for i := 0; i < 4; i++ {
					more(t, moved)
					t.admin("PUT", path([]string{out, in}[i%2])+"/unload", nil)
				}
			})
		})
		transacting(fmt.Sprintf("exactly once while the broker is killed, batched %v", batched), true, func(t *T) {
			t.transfer(batched, func(moved func() int, in, out string) {
				for i := 0; i < 3; i++ {
					more(t, moved)
					order("kill")
					order("start")
				}
			})
		})
	}
	alone("transactions: a clear error, at once, from a broker that has none", func(t *T) {
		order("kill")
		order("start transactionCoordinatorEnabled=false")
		defer func() {
			order("kill")
			order("start transactionCoordinatorEnabled=true")
		}()
		start := time.Now()
		client, err := t.tryClient(pulsar.ClientOptions{EnableTransaction: true, OperationTimeout: 10 * time.Second})
		if err == nil {
			_, err = client.NewTransaction(time.Minute)
		}
		t.expect(err != nil, "no error")
		t.expect(time.Since(start) < 12*time.Second, "took %v: %v", time.Since(start), err)
	})
}
