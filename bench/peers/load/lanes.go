package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// lane is a way to the server with a window of its own; done is called once the message is durable there.
type lane interface {
	send(payload []byte, key string, deliverAt time.Time, done func())
	flush()
}

// lanes opens one for each producer: topics and connections take turns.
func lanes(s *spec, each bool) []lane {
	count := max(s.Connections, s.Topics)
	window := max(1, s.Window/count)
	if each {
		window = 100_000 // an open loop waits for nobody
	}
	out := make([]lane, count)
	switch s.Kind {
	case "pulsar":
		pulsarLanes(s, out, window)
	case "redis":
		for i := range out {
			// A lane of the open loop has what its bursts need; the others one connection each.
			client := redis.NewClient(&redis.Options{Addr: s.URL, PoolSize: map[bool]int{true: 64, false: 1}[each]})
			out[i] = &redisLane{client: client, stream: s.Topic, window: window, each: each}
		}
	case "nats":
		for i := range out {
			out[i] = newNatsLane(s, window, i == 0)
		}
	default:
		fail("unknown kind %q", s.Kind)
	}
	return out
}

// topicOf names the topic of a producer.
func (s *spec) topicOf(i int) string {
	if s.Topics == 1 {
		return s.Topic
	}
	return fmt.Sprintf("%s-%d", s.Topic, i%s.Topics)
}

// preparePartitions makes the topic a partitioned one if it is to be.
func preparePartitions(s *spec) {
	if s.Partitions == 0 {
		return
	}
	path := s.Web + "/admin/v2/" + strings.Replace(s.Topic, "://", "/", 1) + "/partitions"
	request, err := http.NewRequest("PUT", path, bytes.NewReader([]byte(fmt.Sprint(s.Partitions))))
	if err != nil {
		fail("partitions: %v", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		fail("partitions: %v", err)
	}
	response.Body.Close()
	if response.StatusCode/100 != 2 {
		fail("partitions: status %d", response.StatusCode)
	}
}

func pulsarLanes(s *spec, out []lane, window int) {
	clients := make([]pulsar.Client, s.Connections)
	for i := range clients {
		clients[i] = newClient(s)
	}
	ready := make(chan struct{})
	next := make(chan int)
	for range 16 {
		go func() {
			for i := range next {
				o := pulsar.ProducerOptions{Topic: s.topicOf(i), DisableBatching: !s.Batched, MaxPendingMessages: window}
				if s.LZ4 {
					o.CompressionType = pulsar.LZ4
				}
				p, err := clients[i%len(clients)].CreateProducer(o)
				if err != nil {
					fail("producer: %v", err)
				}
				out[i] = &pulsarLane{p}
				ready <- struct{}{}
			}
		}()
	}
	go func() {
		for i := range out {
			next <- i
		}
		close(next)
	}()
	for range out {
		<-ready
	}
}

type pulsarLane struct{ producer pulsar.Producer }

func (l *pulsarLane) send(payload []byte, key string, deliverAt time.Time, done func()) {
	m := &pulsar.ProducerMessage{Payload: payload, Key: key, DeliverAt: deliverAt}
	l.producer.SendAsync(ctx, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		if err != nil {
			fail("send: %v", err)
		}
		done()
	})
}

func (l *pulsarLane) flush() {
	if err := l.producer.Flush(); err != nil {
		fail("flush: %v", err)
	}
}

// redisLane appends to a stream: each at once on a connection of a pool, or a pipeline as long as the window.
type redisLane struct {
	client *redis.Client
	stream string
	window int
	each   bool
	queued [][]byte
	done   []func()
}

func (l *redisLane) values(payload []byte) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: l.stream, Values: []any{"p", payload}}
}

func (l *redisLane) send(payload []byte, _ string, _ time.Time, done func()) {
	if l.each {
		go func() {
			if err := l.client.XAdd(ctx, l.values(payload)).Err(); err != nil {
				fail("send: %v", err)
			}
			done()
		}()
		return
	}
	l.queued, l.done = append(l.queued, payload), append(l.done, done)
	if len(l.queued) == l.window {
		l.flush()
	}
}

func (l *redisLane) flush() {
	if len(l.queued) == 0 {
		return
	}
	pipeline := l.client.Pipeline()
	for _, payload := range l.queued {
		pipeline.XAdd(ctx, l.values(payload))
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		fail("send: %v", err)
	}
	for _, done := range l.done {
		done()
	}
	l.queued, l.done = l.queued[:0], l.done[:0]
}

type pending struct {
	future jetstream.PubAckFuture
	done   func()
}

// natsLane publishes to a stream on files; acknowledgments come in the order of the sends.
type natsLane struct {
	js      jetstream.JetStream
	subject string
	room    chan struct{}
	waiting chan pending
}

func newNatsLane(s *spec, window int, first bool) *natsLane {
	connection, err := nats.Connect(s.URL)
	if err != nil {
		fail("connect: %v", err)
	}
	// The limit of pending ones of its own is an error after a while, not a wait: the window is kept here.
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(window+1))
	if err != nil {
		fail("JetStream: %v", err)
	}
	if first {
		config := jetstream.StreamConfig{Name: s.Topic, Subjects: []string{s.Topic}, Storage: jetstream.FileStorage}
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			fail("stream: %v", err)
		}
	}
	l := &natsLane{js, s.Topic, make(chan struct{}, window), make(chan pending, window)}
	go func() {
		for p := range l.waiting {
			select {
			case <-p.future.Ok():
				<-l.room
				p.done()
			case err := <-p.future.Err():
				fail("send: %v", err)
			}
		}
	}()
	return l
}

func (l *natsLane) send(payload []byte, _ string, _ time.Time, done func()) {
	l.room <- struct{}{}
	future, err := l.js.PublishAsync(l.subject, payload)
	if err != nil {
		fail("send: %v", err)
	}
	l.waiting <- pending{future, done}
}

func (l *natsLane) flush() {}
