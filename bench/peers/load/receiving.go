package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// sink is one subscription: what it has received, by number.
type sink struct {
	name      string
	topics    []string
	client    pulsar.Client
	made      *payloads
	due       []int64        // when a message was due; written before it is sent
	latency   []atomic.Int64 // when it was received first, less due; 0: not yet; -1: by one that is not counted
	received  atomic.Int64   // distinct ones
	copies    atomic.Int64   // all
	acked     atomic.Int64   // acknowledged, those that came again too
	last      atomic.Int64   // when the last distinct one came
	whole     chan struct{}  // closed when all are there
	consumers []pulsar.Consumer
}

type sinkList []*sink

// follow subscribes all consumers that the spec wants, to receive count messages.
func follow(s *spec, made *payloads, count int) sinkList {
	if s.Consumers == 0 {
		return nil
	}
	client := newClient(s)
	sinks := make(sinkList, s.Subscriptions)
	for i := range sinks {
		k := &sink{name: fmt.Sprintf("s%d", i), client: client, made: made, whole: make(chan struct{})}
		k.due, k.latency = make([]int64, count), make([]atomic.Int64, count)
		for t := range s.Topics {
			k.topics = append(k.topics, s.topicOf(t))
		}
		sinks[i] = k
		k.start(s)
	}
	return sinks
}

func (k *sink) options(s *spec) pulsar.ConsumerOptions {
	o := pulsar.ConsumerOptions{
		SubscriptionName: k.name, Type: subscriptionTypes[s.Type], AckWithResponse: s.Acks == "receipt",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest, NackRedeliveryDelay: 100 * time.Millisecond,
	}
	if len(k.topics) == 1 {
		o.Topic = k.topics[0]
	} else {
		o.Topics = k.topics
	}
	return o
}

func (k *sink) subscribe(o pulsar.ConsumerOptions) pulsar.Consumer {
	c, err := k.client.Subscribe(o)
	if err != nil {
		fail("subscribe: %v", err)
	}
	return c
}

func (k *sink) start(s *spec) {
	for range s.Consumers {
		c := k.subscribe(k.options(s))
		k.consumers = append(k.consumers, c)
		go func() {
			k.take(s, c)
		}()
	}
	if s.Slow {
		go k.slowly(s)
	}
	if s.Churn {
		go k.comeAndGo(s)
	}
}

// take receives and acknowledges until the consumer is closed.
func (k *sink) take(s *spec, c pulsar.Consumer) {
	ordered := s.Type == "exclusive" || s.Type == "failover"
	ordered = ordered && s.Connections == 1 && s.Topics == 1 && s.Partitions == 0
	expected := 0
	var held []pulsar.Message
	for m := range c.Chan() {
		if s.Acks == "nack" && m.RedeliveryCount() == 0 {
			c.Nack(m.Message)
			continue
		}
		number := k.note(m.Message, true)
		if ordered {
			if number != expected && !s.Lossy {
				fail("message %d came in place of %d", number, expected)
			}
			expected++
		}
		if s.Acks == "shuffled" {
			held = append(held, m.Message)
			if len(held) == 500 || k.isWhole() {
				rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				for _, one := range held {
					k.ack(c, one)
				}
				held = held[:0]
			}
			continue
		}
		k.ack(c, m.Message)
	}
}

func (k *sink) ack(c pulsar.Consumer, m pulsar.Message) {
	if k.made.spec.Acks == "none" {
		return
	}
	if err := c.Ack(m); err != nil {
		fail("acknowledge: %v", err)
	}
	k.acked.Add(1)
}

// note counts a message and checks its size; its number.
func (k *sink) note(m pulsar.Message, isCounted bool) int {
	payload := m.Payload()
	number := int(binary.BigEndian.Uint64(payload))
	if number >= len(k.due) || len(payload) != k.made.size(number) {
		fail("message %d has %d bytes", number, len(payload))
	}
	k.copies.Add(1)
	late := max(1, now()-k.due[number])
	if !isCounted || m.RedeliveryCount() > 0 {
		late = -1
	}
	if k.latency[number].CompareAndSwap(0, late) {
		k.last.Store(now())
		if k.received.Add(1) == int64(len(k.due)) {
			close(k.whole)
		}
	}
	return number
}

func (k *sink) isWhole() bool { return k.received.Load() == int64(len(k.due)) }

// slowly is a consumer that takes 20 messages a second and never has more than 10 waiting.
func (k *sink) slowly(s *spec) {
	o := k.options(s)
	o.ReceiverQueueSize = 10
	c := k.subscribe(o)
	for !k.isWhole() {
		m, ok := <-c.Chan()
		if !ok {
			return
		}
		time.Sleep(50 * time.Millisecond)
		k.note(m.Message, false)
		k.ack(c, m.Message)
	}
}

// comeAndGo takes 50 messages, acknowledges none and closes, again and again.
func (k *sink) comeAndGo(s *spec) {
	for !k.isWhole() {
		c := k.subscribe(k.options(s))
		enough := time.After(200 * time.Millisecond)
	taking:
		for range 50 {
			select {
			case <-c.Chan():
			case <-enough:
				break taking
			}
		}
		c.Close()
	}
}

// expect says when a message is due.
func (all sinkList) expect(number int, due int64) {
	for _, k := range all {
		k.due[number] = due
	}
}

// await waits until everything has come (what may be lost: a little).
func (all sinkList) await(s *spec) {
	for _, k := range all {
		if s.Lossy {
			select {
			case <-k.whole:
			case <-time.After(500 * time.Millisecond):
			}
		} else {
			<-k.whole
		}
	}
}

// close lets the consumers go once they acknowledged what they received, which sends the acknowledgments that are waiting.
func (all sinkList) close() {
	for _, k := range all {
		for k.acked.Load() < int64(len(k.due)) {
			time.Sleep(time.Millisecond)
		}
		for _, c := range k.consumers {
			c.Close()
		}
	}
}

// latencies of the messages from the first-th on, of all subscriptions, where they count.
func (all sinkList) latencies(first int) []int64 {
	var out []int64
	for _, k := range all {
		for i := first; i < len(k.latency); i++ {
			if late := k.latency[i].Load(); late > 0 {
				out = append(out, late)
			}
		}
	}
	return out
}

// delivered is how many distinct messages came, over all subscriptions.
func (all sinkList) delivered() int64 {
	received := int64(0)
	for _, k := range all {
		received += k.received.Load()
	}
	return received
}

// finished is the rate of distinct deliveries since started, and the server's CPU time for each.
func (all sinkList) finished(s *spec, started int64, cpu time.Duration) answer {
	all.await(s)
	last, received, copies, bytes := int64(0), all.delivered(), int64(0), 0
	for _, k := range all {
		last = max(last, k.last.Load())
		copies += k.copies.Load()
	}
	all.close()
	cpu = cpuOf(s.Pid) - cpu
	for i := range s.Count {
		bytes += all[0].made.size(i)
	}
	seconds := float64(last-started) / 1e9
	a := answer{"rate": float64(received) / seconds, "copies": copies}
	a["mb"] = float64(bytes) * float64(len(all)) / 1e6 / seconds
	a.spent(cpu, int(received))
	return a
}

// fill sends the messages of a run as fast as the window allows.
func fill(s *spec, made *payloads, sinks sinkList) {
	all := lanes(s, false)
	var sending sync.WaitGroup
	for i, l := range all {
		sending.Add(1)
		go func() {
			defer sending.Done()
			for number := i; number < s.Count; number += len(all) {
				sinks.expect(number, now())
				l.send(made.make(number), s.key(number), never, func() {})
			}
			l.flush()
		}()
	}
	sending.Wait()
}

// stream publishes Count messages while its subscriptions follow: from the first send to the last delivery.
func stream(s *spec) answer {
	preparePartitions(s)
	made := newPayloads(s)
	sinks := follow(s, made, s.Count)
	cpu, started := cpuOf(s.Pid), now()
	fill(s, made, sinks)
	return sinks.finished(s, started, cpu)
}

// drain publishes Count messages, then lets one subscription catch up: from its consumers' subscribing to the last
// delivery (with negative acknowledgments: of the second copies).
func drain(s *spec) answer {
	preparePartitions(s)
	made := newPayloads(s)
	early := *s
	early.Consumers = 1
	for i := range s.Subscriptions {
		client := newClient(s)
		k := &sink{name: fmt.Sprintf("s%d", i), topics: []string{s.Topic}, client: client}
		k.subscribe(k.options(&early)).Close()
		client.Close()
	}
	fill(s, made, nil)
	time.Sleep(500 * time.Millisecond)
	cpu, started := cpuOf(s.Pid), now()
	sinks := follow(s, made, s.Count)
	return sinks.finished(s, started, cpu)
}
