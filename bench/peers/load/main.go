// Command peersload puts a load on a broker with an official client and prints one line of JSON: what was measured.
//
// It is started by "python -m bench peers" with one argument, a JSON object (see spec). Everything that is sent is
// counted, everything that is received is checked: nothing lost, nothing of another size, in order where order is
// promised. The CPU time of the server's process is taken over the same window as the rate.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand"
	"os"
	"runtime"
	"sort"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"golang.org/x/sys/unix"
)

// spec says what to do. Counts that are zero are one, but for Consumers.
type spec struct {
	Mode string `json:"mode"` // publish, serial, paced, stream, drain, connect
	Kind string `json:"kind"` // pulsar, redis, nats
	URL  string `json:"url"`
	Web  string `json:"web"`
	Pid  int    `json:"pid"` // of the server whose CPU time is taken

	Topic         string  `json:"topic"`
	Topics        int     `json:"topics"`
	Partitions    int     `json:"partitions"`
	Connections   int     `json:"connections"` // one producer on each
	Window        int     `json:"window"`      // sends in flight, over all producers
	Size          int     `json:"size"`
	SizeMax       int     `json:"size_max"` // sizes from Size to this, evenly over their logarithms
	Batched       bool    `json:"batched"`
	LZ4           bool    `json:"lz4"`
	Keys          string  `json:"keys"` // "": none; new: each once; hot: nine of ten the same
	Rate          float64 `json:"rate"` // paced
	Seconds       float64 `json:"seconds"`
	Warmup        float64 `json:"warmup"`
	Count         int     `json:"count"`         // stream, drain
	DelayMax      float64 `json:"delay_max"`     // paced: seconds until a message is due, at random up to this
	Lossy         bool    `json:"lossy"`         // the broker may drop
	Subscriptions int     `json:"subscriptions"` // each gets everything
	Consumers     int     `json:"consumers"`     // of each subscription
	Type          string  `json:"type"`          // exclusive, failover, shared, key_shared
	Acks          string  `json:"acks"`          // "": each; shuffled, receipt, nack (the first time), none
	Slow          bool    `json:"slow"`          // one more consumer that takes 20 a second
	Churn         bool    `json:"churn"`         // one more consumer that goes after 50 messages, without a word, and comes again
	LimitS        float64 `json:"limit_s"`       // the whole run

	Trust string `json:"trust"` // file of the authorities of the server's certificate; the URL says whether TLS is spoken
	Token string `json:"token"` // what a client shows; "": nothing
}

// answer is what is printed; absent figures are absent.
type answer map[string]any

// base is what times are counted from: they are nanoseconds since then.
var base = time.Now()

func now() int64 { return int64(time.Since(base)) }

// cpuOf is the CPU time of a process, user and system, of all its threads: what /proc shows as utime and stime, finer.
func cpuOf(pid int) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		fail("no CPU time of process %d: %v", pid, err)
	}
	return time.Duration(ts.Nano())
}

func fail(format string, args ...any) {
	line, _ := json.Marshal(answer{"error": fmt.Sprintf(format, args...)})
	fmt.Println(string(line))
	os.Exit(1)
}

// percentiles adds p50, p99 and max of latencies in ms under the prefix.
func (a answer) percentiles(prefix string, latencies []int64) {
	if len(latencies) == 0 {
		fail("no latency was measured")
	}
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(share float64) float64 { return float64(latencies[int(share*float64(len(latencies)-1))]) / 1e6 }
	a[prefix+"p50"], a[prefix+"p99"], a[prefix+"max"] = at(0.5), at(0.99), at(1)
}

// spent adds the server's CPU time for a message.
func (a answer) spent(cpu time.Duration, messages int) {
	a["cpu_us"] = float64(cpu) / 1e3 / float64(messages)
	a["messages"] = messages
}

// sleepUntil waits without Go's timers, which are late by up to a millisecond when nothing else happens.
func sleepUntil(due int64) {
	for left := due - now(); left > 0; left = due - now() {
		ts := unix.NsecToTimespec(left)
		_ = unix.Nanosleep(&ts, nil)
	}
}

// preciseThread keeps the goroutine on a thread of its own whose sleeps end in time.
func preciseThread() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0)
}

// payloads makes the messages of a run: a number, then bytes that do not compress unless compression is wanted.
type payloads struct {
	spec  *spec
	bytes []byte
	sizes []int
}

func newPayloads(s *spec) *payloads {
	largest := max(s.Size, s.SizeMax)
	r := rand.New(rand.NewSource(1))
	p := &payloads{spec: s, bytes: make([]byte, largest*2), sizes: make([]int, 4096)}
	if s.LZ4 {
		words := []string{`{"user":`, `,"event":"click"`, `,"page":"/index.html"`, `,"session":"`, `"}`}
		for i := 0; i < len(p.bytes); {
			i += copy(p.bytes[i:], fmt.Sprint(words[r.Intn(len(words))], r.Intn(100000)))
		}
	} else {
		r.Read(p.bytes)
	}
	for i := range p.sizes {
		p.sizes[i] = s.Size
		if s.SizeMax > s.Size {
			p.sizes[i] = int(float64(s.Size) * math.Pow(float64(s.SizeMax)/float64(s.Size), r.Float64()))
		}
	}
	return p
}

func (p *payloads) size(number int) int { return p.sizes[number%len(p.sizes)] }

func (p *payloads) make(number int) []byte {
	size := p.size(number)
	out := make([]byte, size)
	copy(out, p.bytes[number%size:])
	binary.BigEndian.PutUint64(out, uint64(number))
	return out
}

// key of a message; a run's new keys are those of no other run.
func (s *spec) key(number int) string {
	switch {
	case s.Keys == "new", s.Keys == "hot" && number%10 == 9:
		return fmt.Sprintf("%d-%d", base.UnixNano(), number)
	case s.Keys == "hot":
		return "hot"
	}
	return ""
}

var subscriptionTypes = map[string]pulsar.SubscriptionType{
	"exclusive": pulsar.Exclusive, "failover": pulsar.Failover, "shared": pulsar.Shared, "key_shared": pulsar.KeyShared,
}

func newClient(s *spec) pulsar.Client {
	logger := plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	o := pulsar.ClientOptions{
		URL: s.URL, OperationTimeout: 30 * time.Second, Logger: logger, MetricsCardinality: pulsar.MetricsCardinalityNone,
	}
	if s.Trust != "" {
		o.TLSTrustCertsFilePath, o.TLSValidateHostname = s.Trust, true
	}
	if s.Token != "" {
		o.Authentication = pulsar.NewAuthenticationToken(s.Token)
	}
	c, err := pulsar.NewClient(o)
	if err != nil {
		fail("client: %v", err)
	}
	return c
}

func main() {
	s := spec{Topics: 1, Connections: 1, Window: 1000, Size: 100, Subscriptions: 1, Kind: "pulsar", Type: "exclusive", LimitS: 60}
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		fail("arguments: %v", err)
	}
	time.AfterFunc(time.Duration(s.LimitS*1e9), func() { fail("%s did not end within %v s", s.Mode, s.LimitS) })
	modes := map[string]func(*spec) answer{
		"publish": publish, "serial": serial, "paced": paced, "stream": stream, "drain": drain,
		"connect": connect,
	}
	run, ok := modes[s.Mode]
	if !ok {
		fail("unknown mode %q", s.Mode)
	}
	line, _ := json.Marshal(run(&s))
	fmt.Println(string(line))
}
