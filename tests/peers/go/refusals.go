package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	add("a terminated topic: its producer, new producers, its reader", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		id := t.send(p, &pulsar.ProducerMessage{Payload: []byte("last")})
		answer := string(t.admin("POST", path(topic)+"/terminate", nil))
		t.expect(strings.Contains(answer, fmt.Sprint(id.LedgerID())), "terminate said %s", answer)
		x, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		_, err := p.Send(x, &pulsar.ProducerMessage{Payload: []byte("after")})
		t.expect(isOneOf(err, "terminated", "Terminated", "ProducerClosed"), "Send: %v", err)
		_, err = t.tryProducer(pulsar.ProducerOptions{Topic: topic})
		t.expect(isOneOf(err, "terminated", "Terminated"), "CreateProducer: %v", err)
		equal(t, t.receiveTexts(c, 1, true), []string{"last"}, "received")
		r := t.reader(pulsar.ReaderOptions{Topic: topic})
		equal(t, string(t.next(r).Payload()), "last", "read")
		t.expect(!r.HasNext(), "HasNext at the end")
	})
	add("deletion of a topic in use: refused; forced: clients make it again", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("a")})
		equal(t, t.receiveTexts(c, 1, true), []string{"a"}, "before")
		status, _ := t.rest("DELETE", path(topic), nil)
		equal(t, status, 412, "status of deleting")
		t.admin("DELETE", path(topic)+"?force=true", nil)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("b")})
		t.eventually("the subscription is back", 20*time.Second, func() bool {
			status, b := t.rest("GET", path(topic)+"/subscriptions", nil)
			return status == 200 && strings.Contains(string(b), `"s"`)
		})
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("c")})
		for m := t.receive(c); string(m.Payload()) != "c"; m = t.receive(c) {
		}
	})
	add("topics may not be made by themselves: a clear error", func(t *T) {
		ns := t.namespace()
		t.admin("POST", "namespaces/"+ns+"/autoTopicCreation", map[string]any{"allowAutoTopicCreation": false})
		_, err := t.tryProducer(pulsar.ProducerOptions{Topic: "persistent://" + ns + "/t"})
		t.expect(isOneOf(err, "TopicNotFound", "not found", "NotFound"), "producer: %v", err)
		_, err = t.tryConsumer(pulsar.ConsumerOptions{Topic: "persistent://" + ns + "/t"})
		t.expect(isOneOf(err, "TopicNotFound", "not found", "NotFound"), "consumer: %v", err)
	})
	add("topics made by themselves with partitions", func(t *T) {
		ns := t.namespace()
		t.admin("POST", "namespaces/"+ns+"/autoTopicCreation",
			map[string]any{"allowAutoTopicCreation": true, "topicType": "partitioned", "defaultNumPartitions": 3})
		parts, err := t.client.TopicPartitions("persistent://" + ns + "/t")
		t.no(err, "TopicPartitions")
		equal(t, len(parts), 3, "partitions")
	})
	add("namespaces and tenants that are not there: a clear error, no retries for ever", func(t *T) {
		for _, topic := range []string{"persistent://public/nowhere/t", "persistent://nobody/default/t"} {
			start := time.Now()
			_, err := t.tryProducer(pulsar.ProducerOptions{Topic: topic})
			t.expect(err != nil, "no error")
			_, err = t.tryConsumer(pulsar.ConsumerOptions{Topic: topic})
			t.expect(err != nil, "no error")
			t.expect(time.Since(start) < 10*time.Second, "took %v", time.Since(start))
		}
	})
	add("names with signs of all kinds", func(t *T) {
		topic := t.topic() + "-ünï côdé:+%&=~@"
		sub := "süb/with:signs +%&?#"
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: sub})
		p := t.plain(topic)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
		equal(t, t.receiveTexts(c, 1, true), []string{"x"}, "received")
	})
	add("service URLs: http, several hosts, several connections", func(t *T) {
		topic := t.topic()
		for _, o := range []pulsar.ClientOptions{
			{URL: *webURL}, {URL: strings.Replace(*serviceURL, "127.0.0.1", "localhost", 1) + "," + (*serviceURL)[strings.Index(*serviceURL, "://")+3:]},
			{MaxConnectionsPerBroker: 4}, {Description: "described"}, {LookupProperties: map[string]string{"a": "b"}},
		} {
			client := t.newClient(o)
			c, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
			t.no(err, "Subscribe with "+o.URL)
			p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
			t.no(err, "CreateProducer with "+o.URL)
			t.sendMany(p, "m", 10)
			equal(t, t.receiveTexts(c, 10, true), texts("m", 0, 10), "received")
			c.Close()
			p.Close()
		}
	})
	add("lookup by HTTP: partitions, patterns, schemas", func(t *T) {
		ns := t.namespace()
		t.client = t.newClient(pulsar.ClientOptions{URL: *webURL})
		topic := "persistent://" + ns + "/parted"
		t.admin("PUT", path(topic)+"/partitions", 3)
		parts, err := t.client.TopicPartitions(topic)
		t.no(err, "TopicPartitions")
		equal(t, len(parts), 3, "partitions")
		c := t.consumer(pulsar.ConsumerOptions{TopicsPattern: "persistent://" + ns + "/pa.*", Schema: pulsar.NewStringSchema(nil)})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewStringSchema(nil)})
		t.send(p, &pulsar.ProducerMessage{Value: "x"})
		got := new(string)
		t.no(t.receive(c).GetSchemaValue(&got), "GetSchemaValue")
		equal(t, *got, "x", "value")
		_, err = t.client.TopicPartitions("persistent://public/nowhere/t")
		t.expect(err != nil, "no error for a namespace that is not there")
	})
	add("keep-alive every second through quiet seconds", func(t *T) {
		t.client = t.newClient(pulsar.ClientOptions{KeepAliveInterval: time.Second})
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		p := t.plain(topic)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("x")})
		before := t.stats(topic)["publishers"].([]any)[0].(map[string]any)["connectedSince"]
		time.Sleep(5 * time.Second)
		t.send(p, &pulsar.ProducerMessage{Payload: []byte("y")})
		equal(t, t.receiveTexts(c, 2, true), []string{"x", "y"}, "received")
		equal(t, t.stats(topic)["publishers"].([]any)[0].(map[string]any)["connectedSince"], before, "connected since")
	})
}
