// Command peers uses the public API of the Go client against a broker and says, check by check, whether what the
// client's documentation promises was seen.
//
// It is started by "python -m tools.peers go", which starts the broker. One line of JSON for each check goes to standard
// output; a check that wants the broker stopped or started asks on standard output ("!kill", "!start key=value") and waits for a
// line on standard input.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

// checkLimit is how long one check may take, faults excepted.
const checkLimit = 60 * time.Second

var (
	serviceURL = flag.String("url", "pulsar://127.0.0.1:6650", "binary service URL")
	webURL     = flag.String("web", "http://127.0.0.1:8080", "HTTP service URL")
	token      = flag.String("token", "", "the clients' token")
	operator   = flag.String("admin", "", "the token of who administers")
	consumer   = flag.String("consumer", "", "a role that may consume in namespaces of the checks")
	trust      = flag.String("trust", "", "PEM file of the authority that is trusted")
	certFile   = flag.String("cert", "", "PEM file of the clients' certificate")
	keyFile    = flag.String("key", "", "PEM file of its key")
	only       = flag.String("k", "", "run the checks whose name contains this")
	parallel   = flag.Int("parallel", 6, "checks at a time")
	logFile    = flag.String("log", "", "the client's own log")
)

// check is one promise; alone: it disturbs the others, or needs the broker for itself.
type check struct {
	name  string
	alone bool
	run   func(*T)
}

var checks []check

func add(name string, run func(*T))   { checks = append(checks, check{name, false, run}) }
func alone(name string, run func(*T)) { checks = append(checks, check{name, true, run}) }

// failure is what a failed expectation panics with.
type failure struct{ text string }

// T is the world of one check: a client, a namespace, names of its own.
type T struct {
	name     string
	client   pulsar.Client
	lock     sync.Mutex
	closers  []func()
	sequence atomic.Int64
	logger   plog.Logger
}

var ctx = context.Background()
var stdout sync.Mutex
var orders = bufio.NewReader(os.Stdin)
var orderLock sync.Mutex

// order asks the program that started this one to do something to the broker, and waits until it is done.
func order(what string) {
	orderLock.Lock()
	defer orderLock.Unlock()
	stdout.Lock()
	fmt.Println("!" + what)
	stdout.Unlock()
	if _, err := orders.ReadString('\n'); err != nil {
		panic(failure{"no answer to " + what + ": " + err.Error()})
	}
}

// failf ends the check; the text gets the places in the check that led here.
func (t *T) failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for skip := 1; ; skip++ {
		_, file, line, ok := runtime.Caller(skip)
		if !ok {
			panic(failure{text})
		}
		if name := filepath.Base(file); filepath.Base(filepath.Dir(file)) == "go" && name != "main.go" && name != "proc.go" {
			text += fmt.Sprintf(" (%s:%d)", name, line)
		}
	}
}

func (t *T) expect(ok bool, format string, args ...any) {
	if !ok {
		t.failf(format, args...)
	}
}

func (t *T) no(err error, doing string) {
	if err != nil {
		t.failf("%s: %v", doing, err)
	}
}

func equal[V any](t *T, got, want V, what string) {
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.failf("%s is %s, expected %s", what, g, w)
	}
}

func (t *T) topic() string {
	return fmt.Sprintf("persistent://public/default/go-%s-%d-%d", t.name, os.Getpid(), t.sequence.Add(1))
}

func (t *T) volatileTopic() string { return "non-" + t.topic() }

func (t *T) later(f func()) {
	t.lock.Lock()
	t.closers = append(t.closers, f)
	t.lock.Unlock()
}

func (t *T) newClient(o pulsar.ClientOptions) pulsar.Client {
	c, err := t.tryClient(o)
	t.no(err, "NewClient")
	return c
}

func (t *T) tryClient(o pulsar.ClientOptions) (pulsar.Client, error) {
	if o.URL == "" {
		o.URL = *serviceURL
	}
	if o.OperationTimeout == 0 {
		o.OperationTimeout = 20 * time.Second
	}
	o.TLSTrustCertsFilePath = *trust
	o.TLSValidateHostname = *trust != ""
	if *token != "" {
		o.Authentication = pulsar.NewAuthenticationToken(*token)
	} else if *certFile != "" {
		o.Authentication = pulsar.NewAuthenticationTLS(*certFile, *keyFile)
	}
	o.Logger = t.logger
	o.MetricsCardinality = pulsar.MetricsCardinalityNone
	c, err := pulsar.NewClient(o)
	if err == nil {
		t.later(c.Close)
	}
	return c, err
}

func (t *T) tryProducer(o pulsar.ProducerOptions) (pulsar.Producer, error) {
	p, err := t.client.CreateProducer(o)
	if err == nil {
		t.later(p.Close)
	}
	return p, err
}

func (t *T) producer(o pulsar.ProducerOptions) pulsar.Producer {
	p, err := t.tryProducer(o)
	t.no(err, "CreateProducer")
	return p
}

func (t *T) plain(topic string) pulsar.Producer {
	return t.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
}

func (t *T) tryConsumer(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if o.SubscriptionName == "" {
		o.SubscriptionName = "s"
	}
	c, err := t.client.Subscribe(o)
	if err == nil {
		t.later(c.Close)
	}
	return c, err
}

func (t *T) consumer(o pulsar.ConsumerOptions) pulsar.Consumer {
	c, err := t.tryConsumer(o)
	t.no(err, "Subscribe")
	return c
}

func (t *T) reader(o pulsar.ReaderOptions) pulsar.Reader {
	if o.StartMessageID == nil {
		o.StartMessageID = pulsar.EarliestMessageID()
	}
	r, err := t.client.CreateReader(o)
	t.no(err, "CreateReader")
	t.later(r.Close)
	return r
}

func (t *T) send(p pulsar.Producer, m *pulsar.ProducerMessage) pulsar.MessageID {
	c, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id, err := p.Send(c, m)
	t.no(err, "Send")
	return id
}

// sendMany sends texts prefix0 .. prefix(n-1) and waits for their receipts.
func (t *T) sendMany(p pulsar.Producer, prefix string, n int) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, n)
	errs := make(chan error, n)
	for i := 0; i < n; i++ {
		i := i
		p.SendAsync(ctx, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprintf("%s%d", prefix, i))},
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				ids[i] = id
				errs <- err
			})
	}
	t.no(p.FlushWithCtx(ctx), "Flush")
	for i := 0; i < n; i++ {
		t.no(<-errs, "SendAsync")
	}
	return ids
}

func texts(prefix string, from, to int) []string {
	out := []string{}
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

func (t *T) receive(c pulsar.Consumer) pulsar.Message {
	return t.receiveWithin(c, 20*time.Second)
}

func (t *T) receiveWithin(c pulsar.Consumer, d time.Duration) pulsar.Message {
	x, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	m, err := c.Receive(x)
	if err != nil {
		t.failf("Receive within %v: %v", d, err)
	}
	return m
}

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// none: nothing comes for a while.
func (t *T) none(c pulsar.Consumer, d time.Duration) {
	x, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if m, err := c.Receive(x); err == nil {
		t.failf("received %q, expected nothing", m.Payload())
	}
}

func (t *T) receiveTexts(c pulsar.Consumer, n int, ack bool) []string {
	out := []string{}
	for i := 0; i < n; i++ {
		m := t.receive(c)
		out = append(out, string(m.Payload()))
		if ack {
			t.no(c.Ack(m), "Ack")
		}
	}
	return out
}

// drain takes what comes until nothing has come for a while.
func drain(c pulsar.Consumer, quiet time.Duration, each func(pulsar.Message)) int {
	n := 0
	for {
		x, cancel := context.WithTimeout(ctx, quiet)
		m, err := c.Receive(x)
		cancel()
		if err != nil {
			return n
		}
		n++
		if each != nil {
			each(m)
		}
	}
}

func (t *T) next(r pulsar.Reader) pulsar.Message {
	x, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	m, err := r.Next(x)
	t.no(err, "Next")
	return m
}

func (t *T) eventually(what string, limit time.Duration, f func() bool) {
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			t.failf("not within %v: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func sorted(in []string) []string {
	out := append([]string{}, in...)
	sort.Strings(out)
	return out
}

// web is the HTTP client of admin requests, which trusts the authority of the run.
var web = sync.OnceValue(func() *http.Client {
	if *trust == "" {
		return http.DefaultClient
	}
	pem, err := os.ReadFile(*trust)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
})

// rest does an admin request; path begins behind /admin/v2/.
func (t *T) rest(method, path string, body any) (int, []byte) {
	var content io.Reader
	if body != nil {
		b, _ := json.Marshal(body)
		content = bytes.NewReader(b)
	}
	request, err := http.NewRequest(method, *webURL+"/admin/v2/"+path, content)
	t.no(err, "request")
	request.Header.Set("Content-Type", "application/json")
	if *operator != "" {
		request.Header.Set("Authorization", "Bearer "+*operator)
	}
	answer, err := web().Do(request)
	t.no(err, method+" "+path)
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, b
}

func (t *T) admin(method, path string, body any) []byte {
	status, answer := t.rest(method, path, body)
	if status/100 != 2 {
		t.failf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

func path(topic string) string { return strings.Replace(topic, "://", "/", 1) }

func (t *T) stats(topic string) map[string]any {
	var out map[string]any
	t.no(json.Unmarshal(t.admin("GET", path(topic)+"/stats", nil), &out), "stats")
	return out
}

// namespace makes a namespace of its own.
func (t *T) namespace() string {
	name := fmt.Sprintf("public/go-%s-%d-%d", t.name, os.Getpid(), t.sequence.Add(1))
	t.admin("PUT", "namespaces/"+name, nil)
	if *consumer != "" {
		t.admin("POST", "namespaces/"+name+"/permissions/"+*consumer, []string{"consume"})
	}
	return name
}

type verdict struct {
	Check   string `json:"check"`
	Passed  bool   `json:"passed"`
	Ms      int64  `json:"ms"`
	Problem string `json:"problem,omitempty"`
}

// plainSign makes a sign of a check's name one of a topic's name.
func plainSign(r rune) rune {
	switch {
	case r == ' ':
		return '-'
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return r
	}
	return -1
}

func (c check) do(logger plog.Logger) {
	start := time.Now()
	done := make(chan string, 1)
	t := &T{name: strings.ReplaceAll(strings.Map(plainSign, c.name), "partition", "part"), logger: logger}
	go func() {
		defer func() {
			if r := recover(); r != nil {
				if f, ok := r.(failure); ok {
					done <- f.text
				} else {
					done <- fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
				}
			}
		}()
		t.client = t.newClient(pulsar.ClientOptions{})
		c.run(t)
		done <- ""
	}()
	limit := checkLimit
	if c.alone {
		limit = 4 * checkLimit
	}
	v := verdict{Check: c.name}
	select {
	case v.Problem = <-done:
	case <-time.After(limit):
		v.Problem = fmt.Sprintf("did not end within %v", limit)
	}
	v.Passed = v.Problem == ""
	v.Ms = time.Since(start).Milliseconds()
	go func() {
		t.lock.Lock()
		closers := t.closers
		t.lock.Unlock()
		for i := len(closers) - 1; i >= 0; i-- {
			closers[i]()
		}
	}()
	line, _ := json.Marshal(v)
	stdout.Lock()
	fmt.Println(string(line))
	stdout.Unlock()
}

func main() {
	flag.Parse()
	sink := io.Discard
	if *logFile != "" {
		f, err := os.Create(*logFile)
		if err != nil {
			panic(err)
		}
		sink = io.Writer(f)
	}
	logger := plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(sink, &slog.HandlerOptions{Level: slog.LevelInfo})))
	slots := make(chan struct{}, *parallel)
	var all sync.WaitGroup
	for _, c := range checks {
		if c.alone || !strings.Contains(c.name, *only) {
			continue
		}
		all.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; all.Done() }()
			c.do(logger)
		}()
	}
	all.Wait()
	for _, c := range checks {
		if c.alone && strings.Contains(c.name, *only) {
			c.do(logger)
		}
	}
}
