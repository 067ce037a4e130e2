// What a test of an application does with a Pulsar container; the image is the first argument.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/pulsar"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("passed")
}

func run(image string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	begun := time.Now()
	container, err := pulsar.Run(ctx, image, pulsar.WithTransactions(), pulsar.WithPulsarEnv("brokerDeleteInactiveTopicsEnabled", "false"))
	if err != nil {
		return err
	}
	defer func() { _ = testcontainers.TerminateContainer(container) }()
	fmt.Printf("started in %d ms\n", time.Since(begun).Milliseconds())
	url, err := container.BrokerURL(ctx)
	if err != nil {
		return err
	}
	if err := publish(ctx, url); err != nil {
		return err
	}
	code, output, err := container.Exec(ctx, []string{"bin/pulsar-client", "produce", "by-hand", "-m", "a,b"})
	if err != nil {
		return err
	}
	said, err := io.ReadAll(output)
	if err != nil {
		return err
	}
	if code != 0 || !strings.Contains(string(said), "2 messages sent") {
		return fmt.Errorf("bin/pulsar-client ended with %d: %s", code, said)
	}
	return nil
}

func publish(ctx context.Context, url string) error {
	connected, err := client.NewClient(client.ClientOptions{URL: url})
	if err != nil {
		return err
	}
	defer connected.Close()
	consumer, err := connected.Subscribe(client.ConsumerOptions{Topic: "t", SubscriptionName: "s"})
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := connected.CreateProducer(client.ProducerOptions{Topic: "t"})
	if err != nil {
		return err
	}
	defer producer.Close()
	if _, err := producer.Send(ctx, &client.ProducerMessage{Payload: []byte("hello")}); err != nil {
		return err
	}
	message, err := consumer.Receive(ctx)
	if err != nil {
		return err
	}
	if string(message.Payload()) != "hello" {
		return fmt.Errorf("expected hello, found %s", message.Payload())
	}
	return consumer.Ack(message)
}
