package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var subscriptionTypes = map[string]pulsar.SubscriptionType{"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover,
	"Shared": pulsar.Shared, "Key_Shared": pulsar.KeyShared}

// retaining makes a namespace that keeps what was acknowledged.
func (t *T) retaining() string {
	ns := t.namespace()
	t.admin("POST", "namespaces/"+ns+"/retention", map[string]any{"retentionTimeInMinutes": 60, "retentionSizeInMB": 1000})
	return ns
}

// underLoad sends while disturb runs, and holds that every message with a receipt arrives, each key in order.
func (t *T) underLoad(topic string, batched, dedup bool, disturb func(sent func() int)) {
	type stream struct {
		name string
		cs   []pulsar.Consumer
		lock sync.Mutex
		seen map[string]int
		last map[string]int
		bad  string
	}
	streams := []*stream{}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for name, kind := range subscriptionTypes {
		s := &stream{name: name, seen: map[string]int{}, last: map[string]int{}}
		n := 2
		if kind == pulsar.Exclusive {
			n = 1
		}
		for i := 0; i < n; i++ {
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: kind, Name: fmt.Sprint(name, i),
				SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
			s.cs = append(s.cs, c)
			all.Add(1)
			go func() {
				defer all.Done()
				for {
					select {
					case <-stop:
						return
					case m, ok := <-c.Chan():
						if !ok {
							return
						}
						var n int
						fmt.Sscan(string(m.Payload()), &n)
						s.lock.Lock()
						first := s.seen[string(m.Payload())] == 0
						s.seen[string(m.Payload())]++
						if first && kind != pulsar.Shared {
							if n < s.last[m.Key()] {
								s.bad = fmt.Sprintf("%s: first sight of %d after %d, key %s", name, n, s.last[m.Key()], m.Key())
							}
							s.last[m.Key()] = n
						}
						s.lock.Unlock()
						c.Ack(m.Message)
					}
				}
			}()
		}
		streams = append(streams, s)
	}
	p := t.producer(pulsar.ProducerOptions{Topic: topic, Name: "load", DisableBatching: !batched, SendTimeout: -1,
		BatcherBuilderType: map[bool]pulsar.BatcherBuilderType{true: pulsar.KeyBasedBatchBuilder}[batched]})
	var lock sync.Mutex
	receipts, failed := 0, 0
	ended := make(chan struct{})
	done := make(chan int)
	go func() {
		i := 0
		for ; ; i++ {
			select {
			case <-ended:
				done <- i
				return
			default:
			}
			n := int64(i + 1)
			p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(i)), Key: fmt.Sprint("k", i%50), SequenceID: &n},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					lock.Lock()
					defer lock.Unlock()
					if err != nil {
						failed++
					} else {
						receipts++
					}
				})
			time.Sleep(500 * time.Microsecond)
		}
	}()
	disturb(func() int { lock.Lock(); defer lock.Unlock(); return receipts })
	close(ended)
	total := <-done
	t.no(p.FlushWithCtx(ctx), "Flush")
	lock.Lock()
	equal(t, failed, 0, "messages that failed")
	equal(t, receipts, total, "receipts")
	lock.Unlock()
	for _, s := range streams {
		t.eventually(fmt.Sprintf("%s has all %d", s.name, total), 40*time.Second, func() bool {
			s.lock.Lock()
			defer s.lock.Unlock()
			return len(s.seen) == total
		})
		s.lock.Lock()
		equal(t, s.bad, "", "order")
		s.lock.Unlock()
	}
	r := t.reader(pulsar.ReaderOptions{Topic: topic})
	n := 0
	for ; r.HasNext(); n++ {
		t.next(r)
	}
	if dedup {
		equal(t, n, total, "stored messages")
	}
	t.expect(n >= total, "%d stored of %d", n, total)
	for _, s := range streams {
		t.eventually(s.name+": no backlog", 30*time.Second, func() bool { return t.backlog(topic, s.name) == 0 })
	}
	close(stop)
	all.Wait()
}

func init() {
	for _, batched := range []bool{false, true} {
		batched := batched
		add(fmt.Sprintf("unloads under load, batched %v", batched), func(t *T) {
			topic := "persistent://" + t.retaining() + "/t"
			t.underLoad(topic, batched, false, func(sent func() int) {
				for i := 1; i <= 4; i++ {
					before := sent()
					t.eventually("more receipts", 20*time.Second, func() bool { return sent() > before+300 })
					t.admin("PUT", path(topic)+"/unload", nil)
				}
			})
		})
		alone(fmt.Sprintf("the broker killed under load, batched %v", batched), func(t *T) {
			ns := t.retaining()
			t.admin("POST", "namespaces/"+ns+"/deduplication", true)
			t.underLoad("persistent://"+ns+"/t", batched, true, func(sent func() int) {
				for i := 0; i < 3; i++ {
					before := sent()
					t.eventually("more receipts", 60*time.Second, func() bool { return sent() > before+300 })
					order("kill")
					order("start")
				}
			})
		})
	}
	add("an unload with nothing to do; partitions; non-persistent", func(t *T) {
		parted := t.topic()
		t.admin("PUT", path(parted)+"/partitions", 3)
		for _, topic := range []string{t.topic(), parted, t.volatileTopic()} {
			c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
			p := t.plain(topic)
			t.sendMany(p, "a", 9)
			equal(t, len(t.receiveTexts(c, 9, true)), 9, "before")
			t.admin("PUT", path(topic)+"/unload", nil)
			t.eventually("messages come again", 20*time.Second, func() bool {
				t.sendMany(p, "b", 3)
				return drain(c, 300*time.Millisecond, func(m pulsar.Message) { c.Ack(m) }) > 0
			})
		}
	})
	alone("what was acknowledged with a receipt is not seen again after kill -9", func(t *T) {
		topic := t.topic()
		o := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, AckWithResponse: true, EnableBatchIndexAcknowledgment: true}
		c := t.consumer(o)
		t.sendMany(t.plain(topic), "m", 20)
		t.sendMany(t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second}), "b", 10)
		for i := 0; i < 30; i++ {
			if m := t.receive(c); i%3 != 0 {
				t.no(c.Ack(m), "Ack")
			}
		}
		order("kill")
		order("start")
		got := []string{}
		drain(c, 5*time.Second, func(m pulsar.Message) { got = append(got, string(m.Payload())) })
		want := []string{}
		for i, x := range append(texts("m", 0, 20), texts("b", 0, 10)...) {
			if i%3 == 0 {
				want = append(want, x)
			}
		}
		equal(t, sorted(got), sorted(want), "what comes again")
	})
	alone("delayed messages, table views, readers and patterns over a restart", func(t *T) {
		ns := t.namespace()
		topic := "persistent://" + ns + "/t"
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
		w := t.consumer(pulsar.ConsumerOptions{TopicsPattern: "persistent://" + ns + "/.*", SubscriptionName: "w",
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, AutoDiscoveryPeriod: time.Second})
		r := t.reader(pulsar.ReaderOptions{Topic: topic})
		p := t.plain(topic)
		due := time.Now().Add(8 * time.Second)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("late"), DeliverAt: due})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("now")})
		equal(t, string(t.next(r).Payload()), "late", "read before")
		order("kill")
		order("start")
		equal(t, string(t.next(r).Payload()), "now", "read after")
		seen := ""
		for !strings.Contains(seen, "late") {
			m := t.receive(c)
			seen += string(m.Payload()) + " "
			if string(m.Payload()) == "late" {
				t.expect(time.Now().After(due.Add(-100*time.Millisecond)), "late came too early")
			}
			c.Ack(m)
		}
		t.sendMany(t.plain("persistent://"+ns+"/new"), "n", 3)
		n := 0
		for n < 3 {
			if strings.HasPrefix(string(t.receive(w).Payload()), "n") {
				n++
			}
		}
	})
}
