// Command load publishes to topics and consumes them with the Go client while brokers come and go.
//
// It prints "A topic number" for each receipt, "R topic number key" for each delivery, and "E text" for what failed.
// "stop" on standard input ends publishing: "S topic count" says how many were sent, when each has its receipt. "end" ends it.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

const keys = 4

var lock sync.Mutex
var out = bufio.NewWriter(os.Stdout)

func say(format string, args ...any) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Fprintf(out, format+"\n", args...)
	out.Flush()
}

func must[V any](value V, err error) V {
	if err != nil {
		say("E %v", err)
		os.Exit(1)
	}
	return value
}

func main() {
	url := flag.String("url", "", "service URL")
	names := flag.String("topics", "", "topics, with commas between")
	pause := flag.Duration("pause", 20*time.Millisecond, "between two messages of a topic")
	flag.Parse()
	topics := strings.Split(*names, ",")
	quiet := plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL: *url, OperationTimeout: 120 * time.Second, Logger: quiet, MetricsCardinality: pulsar.MetricsCardinalityNone,
	}))
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topics: topics, SubscriptionName: "go", Type: pulsar.Failover,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
	ending := make(chan struct{})
	stopping, done := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	for _, topic := range topics {
		sending.Add(1)
		go send(client, topic, *pause, stopping, &sending)
	}
	go func() {
		for {
			message, err := consumer.Receive(context.Background())
			if err != nil {
				return
			}
			say("R %s %s %s", message.Topic(), message.Payload(), message.Key())
			consumer.Ack(message)
		}
	}()
	go func() {
		orders := bufio.NewScanner(os.Stdin)
		for orders.Scan() {
			if orders.Text() == "stop" {
				done()
			} else {
				break
			}
		}
		close(ending)
	}()
	sending.Wait()
	<-ending
	os.Exit(0)
}

func send(client pulsar.Client, topic string, pause time.Duration, stopping context.Context, sending *sync.WaitGroup) {
	defer sending.Done()
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, Name: "go", SendTimeout: -1, DisableBatching: true,
	}))
	number := 0
	for stopping.Err() == nil {
		number++
		mine := number
		sequence := int64(mine)
		message := &pulsar.ProducerMessage{
			Payload: []byte(strconv.Itoa(mine)), Key: strconv.Itoa(mine % keys), SequenceID: &sequence,
		}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				say("E %s %d: %v", topic, mine, err)
			} else {
				say("A %s %d", topic, mine)
			}
		})
		time.Sleep(pause)
	}
	producer.Flush()
	say("S %s %d", topic, number)
}
