package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
	"google.golang.org/protobuf/types/known/durationpb"
)

type person struct {
	Name string `json:"name" avro:"name"`
	Age  int32  `json:"age" avro:"age"`
}

const personDefinition = `{"type":"record","name":"Person","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"}]}`
const grownDefinition = `{"type":"record","name":"Person","fields":[{"name":"name","type":"string"},{"name":"age","type":"int"},
	{"name":"town","type":"string","default":""}]}`
const otherDefinition = `{"type":"record","name":"Person","fields":[{"name":"name","type":"int"}]}`

func trip[V any](t *T, s pulsar.Schema, in any, out V) V {
	topic := t.topic()
	c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Schema: s})
	p := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: s})
	t.send(p, &pulsar.ProducerMessage{Value: in})
	m := t.receive(c)
	t.no(m.GetSchemaValue(out), "GetSchemaValue")
	return out
}

func init() {
	add("schemas of plain values", func(t *T) {
		equal(t, *trip(t, pulsar.NewInt8Schema(nil), int8(-7), new(int8)), -7, "int8")
		equal(t, *trip(t, pulsar.NewInt16Schema(nil), int16(-700), new(int16)), -700, "int16")
		equal(t, *trip(t, pulsar.NewInt32Schema(nil), int32(1<<30), new(int32)), 1<<30, "int32")
		equal(t, *trip(t, pulsar.NewInt64Schema(nil), int64(1<<60), new(int64)), int64(1<<60), "int64")
		equal(t, *trip(t, pulsar.NewFloatSchema(nil), float32(1.5), new(float32)), 1.5, "float")
		equal(t, *trip(t, pulsar.NewDoubleSchema(nil), 2.25, new(float64)), 2.25, "double")
		text := new(string)
		equal(t, **trip(t, pulsar.NewStringSchema(nil), "täxt", &text), "täxt", "string")
		equal(t, string(*trip(t, pulsar.NewBytesSchema(nil), []byte("by"), new([]byte))), "by", "bytes")
	})
	add("schemas: JSON and Avro of a record, native protobuf", func(t *T) {
		want := person{"Ann", 41}
		for _, s := range []pulsar.Schema{
			pulsar.NewJSONSchema(personDefinition, map[string]string{"k": "v"}), pulsar.NewAvroSchema(personDefinition, nil),
		} {
			equal(t, *trip(t, s, &want, &person{}), want, "record")
		}
		d := durationpb.New(5 * time.Second)
		equal(t, trip(t, pulsar.NewProtoNativeSchemaWithMessage(d, nil), d, &durationpb.Duration{}).AsDuration(), 5*time.Second, "duration")
	})
	add("schemas: versions grow, readers follow, what does not fit is refused", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(personDefinition, nil)})
		p := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(personDefinition, nil)})
		t.send(p, &pulsar.ProducerMessage{Value: &person{"Ann", 1}})
		q := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(grownDefinition, nil)})
		type grown struct {
			Name string `avro:"name"`
			Age  int32  `avro:"age"`
			Town string `avro:"town"`
		}
		t.send(q, &pulsar.ProducerMessage{Value: &grown{"Bob", 2, "Ulm"}})
		first, second := t.receive(c), t.receive(c)
		t.expect(string(first.SchemaVersion()) != string(second.SchemaVersion()), "both have version %x", first.SchemaVersion())
		equal(t, len(second.SchemaVersion()), 8, "bytes of the version")
		_, err := t.tryProducer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewAvroSchema(otherDefinition, nil)})
		t.expect(isOneOf(err, "IncompatibleSchema", "ncompatible"), "producer: %v", err)
		_, err = t.tryConsumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "x", Schema: pulsar.NewAvroSchema(otherDefinition, nil)})
		t.expect(isOneOf(err, "IncompatibleSchema", "ncompatible"), "consumer: %v", err)
		_, err = t.tryProducer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewInt32Schema(nil)})
		t.expect(isOneOf(err, "IncompatibleSchema", "ncompatible"), "another type: %v", err)
	})
	add("schemas: one producer, a schema with each message", func(t *T) {
		topic := t.topic()
		c := t.consumer(pulsar.ConsumerOptions{Topic: topic})
		small, big := pulsar.NewAvroSchema(personDefinition, nil), pulsar.NewAvroSchema(grownDefinition, nil)
		p := t.producer(pulsar.ProducerOptions{Topic: topic, Schema: small})
		type grown struct {
			Name string `avro:"name"`
			Age  int32  `avro:"age"`
			Town string `avro:"town"`
		}
		versions := map[string]bool{}
		for i := int32(0); i < 4; i++ {
			if i%2 == 0 {
				t.send(p, &pulsar.ProducerMessage{Value: &person{"Ann", i}})
			} else {
				t.send(p, &pulsar.ProducerMessage{Schema: big, Value: &grown{"Bob", i, "Ulm"}})
			}
			versions[string(t.receive(c).SchemaVersion())] = true
		}
		equal(t, len(versions), 2, "versions")
	})
	add("encryption: with the key, without it by each of the three actions", func(t *T) {
		folder, err := os.MkdirTemp("", "peers")
		t.no(err, "MkdirTemp")
		t.later(func() { os.RemoveAll(folder) })
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		t.no(err, "GenerateKey")
		public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
		t.no(err, "MarshalPKIXPublicKey")
		write := func(name, kind string, der []byte) string {
			file := filepath.Join(folder, name)
			t.no(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600), "WriteFile")
			return file
		}
		keys := crypto.NewFileKeyReader(write("public", "PUBLIC KEY", public), write("private", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private)))
		topic := t.topic()
		consumer := func(name string, d *pulsar.MessageDecryptionInfo) pulsar.Consumer {
			return t.consumer(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Decryption: d})
		}
		with := consumer("with", &pulsar.MessageDecryptionInfo{KeyReader: keys})
		fail := consumer("fail", nil)
		discard := consumer("discard", &pulsar.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionDiscard})
		raw := consumer("raw", &pulsar.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume})
		for _, batched := range []bool{false, true} {
			p := t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched, CompressionType: pulsar.LZ4,
				Encryption: &pulsar.ProducerEncryptionInfo{KeyReader: keys, Keys: []string{"k1"}}})
			t.sendMany(p, "secret", 5)
			equal(t, t.receiveTexts(with, 5, true), texts("secret", 0, 5), "with the key")
		}
		m := t.receive(raw)
		t.expect(m.GetEncryptionContext() != nil && string(m.Payload()) != "secret0", "raw: %q", m.Payload())
		t.none(fail, 500*time.Millisecond)
		t.none(discard, 500*time.Millisecond)
		equal(t, fmt.Sprint(len(m.GetEncryptionContext().Keys)), "1", "keys in the context")
	})
}
