package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	add("readers: first, last, at a message, beside it; HasNext; seek", func(t *T) {
		topic := t.topic()
		p := t.plain(topic)
		ids := t.sendMany(p, "m", 10)
		r := t.reader(pulsar.ReaderOptions{Topic: topic})
		n := 0
		for ; r.HasNext(); n++ {
			equal(t, string(t.next(r).Payload()), fmt.Sprint("m", n), "read")
		}
		equal(t, n, 10, "messages")
		last, err := r.GetLastMessageID()
		t.no(err, "GetLastMessageID")
		equal(t, last.EntryID(), ids[9].EntryID(), "last id")
		equal(t, string(t.next(t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[4]})).Payload()), "m5", "exclusive")
		equal(t, string(t.next(t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[4], StartMessageIDInclusive: true})).Payload()), "m4", "inclusive")
		l := t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.LatestMessageID()})
		t.expect(!l.HasNext(), "HasNext of a reader at the end")
		li := t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.LatestMessageID(), StartMessageIDInclusive: true})
		t.expect(li.HasNext(), "HasNext of a reader at the last message")
		equal(t, string(t.next(li).Payload()), "m9", "latest inclusive")
		t.sendMany(p, "n", 1)
		equal(t, string(t.next(l).Payload()), "n0", "latest")
		t.no(r.Seek(ids[2]), "Seek")
		equal(t, string(t.next(r).Payload()), "m3", "after Seek")
		// Of a reader of its own: after Seek the client goes by the message it was given, whatever the time.
		r = t.reader(pulsar.ReaderOptions{Topic: topic})
		for r.HasNext() {
			t.next(r)
		}
		t.no(r.SeekByTime(time.Now().Add(-time.Hour)), "SeekByTime")
		equal(t, string(t.next(r).Payload()), "m0", "after SeekByTime")
		t.no(r.SeekByTime(time.Now().Add(time.Hour)), "SeekByTime")
		t.expect(!r.HasNext(), "HasNext after the future")
	})
	add("readers inside a batch", func(t *T) {
		topic := t.topic()
		p := t.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 10, BatchingMaxPublishDelay: time.Second})
		ids := t.sendMany(p, "m", 20)
		for i, id := range ids[:19] {
			equal(t, string(t.next(t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: id})).Payload()), fmt.Sprint("m", i+1), "exclusive")
			equal(t, string(t.next(t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: id, StartMessageIDInclusive: true})).Payload()),
				fmt.Sprint("m", i), "inclusive")
		}
		r := t.reader(pulsar.ReaderOptions{Topic: topic, StartMessageID: ids[19]})
		t.expect(!r.HasNext(), "HasNext after the last of a batch")
	})
	add("readers of an empty topic, of partitions, with a name", func(t *T) {
		topic := t.topic()
		r := t.reader(pulsar.ReaderOptions{Topic: topic, SubscriptionName: "named"})
		t.expect(!r.HasNext(), "HasNext of nothing")
		x, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := r.Next(x)
		t.expect(errors.Is(err, context.DeadlineExceeded), "Next: %v", err)
		t.expect(strings.Contains(string(t.admin("GET", path(topic)+"/subscriptions", nil)), "named"), "its subscription's name")
		parted := t.topic()
		t.admin("PUT", path(parted)+"/partitions", 3)
		t.sendMany(t.plain(parted), "m", 30)
		r = t.reader(pulsar.ReaderOptions{Topic: parted})
		n := 0
		for ; r.HasNext(); n++ {
			t.next(r)
		}
		equal(t, n, 30, "messages of three partitions")
	})
	add("table view: what is there, what comes, what is deleted", func(t *T) {
		topic := t.topic()
		t.admin("PUT", path(topic)+"/partitions", 2)
		s := pulsar.NewStringSchema(nil)
		p := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: s})
		put := func(k, v string) { t.send(p, &pulsar.ProducerMessage{Key: k, Value: v}) }
		put("a", "1")
		put("b", "2")
		put("a", "3")
		v, err := t.client.CreateTableView(pulsar.TableViewOptions{Topic: topic, Schema: s, SchemaValueType: reflect.TypeFor[*string]()})
		t.no(err, "CreateTableView")
		t.later(v.Close)
		t.eventually("two keys", 10*time.Second, func() bool { return v.Size() == 2 && v.ContainsKey("a") })
		equal(t, *v.Get("a").(*string), "3", "a")
		put("c", "4")
		t.eventually("c", 10*time.Second, func() bool { return v.ContainsKey("c") })
	})
}
