package main

import (
	"sync/atomic"
	"time"
)

var never time.Time

// publish sends as fast as the windows allow. What is measured is the Seconds behind Warmup.
func publish(s *spec) answer {
	all, made := lanes(s, false), newPayloads(s)
	var receipts, bytes atomic.Int64
	stop := make(chan struct{})
	for i, l := range all {
		go func() {
			for number := i; ; number += len(all) {
				select {
				case <-stop:
					return
				default:
				}
				payload := made.make(number)
				l.send(payload, s.key(number), never, func() {
					receipts.Add(1)
					bytes.Add(int64(len(payload)))
				})
			}
		}()
	}
	time.Sleep(time.Duration(s.Warmup * 1e9))
	cpu, at, before, bytesBefore := cpuOf(s.Pid), time.Now(), receipts.Load(), bytes.Load()
	time.Sleep(time.Duration(s.Seconds * 1e9))
	count, seconds := receipts.Load()-before, time.Since(at).Seconds()
	cpu = cpuOf(s.Pid) - cpu
	close(stop)
	if count == 0 {
		fail("nothing was answered in %v s", s.Seconds)
	}
	a := answer{"rate": float64(count) / seconds, "mb": float64(bytes.Load()-bytesBefore) / 1e6 / seconds}
	a.spent(cpu, int(count))
	return a
}

// serial sends one at a time: the next when the one before is durable.
func serial(s *spec) answer {
	preciseThread()
	l, made := lanes(s, false)[0], newPayloads(s)
	var latencies []int64
	answered := make(chan struct{}, 1)
	send := func(number int) int64 {
		started := now()
		l.send(made.make(number), s.key(number), never, func() { answered <- struct{}{} })
		<-answered
		return now() - started
	}
	number := 0
	for end := now() + int64(s.Warmup*1e9); now() < end; number++ {
		send(number)
	}
	cpu, at := cpuOf(s.Pid), now()
	for end := at + int64(s.Seconds*1e9); now() < end; number++ {
		latencies = append(latencies, send(number))
	}
	cpu = cpuOf(s.Pid) - cpu
	a := answer{"rate": float64(len(latencies)) / (float64(now()-at) / 1e9)}
	a.spent(cpu, len(latencies))
	a.percentiles("", latencies)
	return a
}

// paced sends at a fixed rate whatever the answers do; latencies count from when a send was due. With consumers, e2e_
// counts until a message is received for the first time (of a delayed one: from when it may be).
func paced(s *spec) answer {
	preciseThread()
	preparePartitions(s)
	count, warm := int(s.Rate*(s.Warmup+s.Seconds)), int(s.Rate*s.Warmup)
	made := newPayloads(s)
	sinks := follow(s, made, count)
	all := lanes(s, true)
	latencies := make([]int64, count)
	var answered atomic.Int64
	whole := make(chan struct{})
	var cpu time.Duration
	started := now() + int64(time.Millisecond)
	for number := range count {
		if number == warm {
			cpu = cpuOf(s.Pid)
		}
		due := started + int64(float64(number)*1e9/s.Rate)
		sleepUntil(due)
		deliverAt := never
		target := due
		if s.DelayMax > 0 {
			wait := int64(s.DelayMax*1e9) * int64(number*7919%1000) / 1000
			deliverAt = base.Add(time.Duration(due + wait)).Truncate(time.Millisecond)
			target = int64(deliverAt.Sub(base))
		}
		sinks.expect(number, target)
		all[number%len(all)].send(made.make(number), s.key(number), deliverAt, func() {
			latencies[number] = now() - due
			if answered.Add(1) == int64(count) {
				close(whole)
			}
		})
	}
	cpu = cpuOf(s.Pid) - cpu
	sent := now()
	<-whole
	took := float64(now()-started) / 1e9
	sinks.await(s)
	a := answer{"rate": float64(count) / took, "sent_rate": float64(count) / (float64(sent-started) / 1e9)}
	a.spent(cpu, count-warm)
	a.percentiles("", latencies[warm:])
	if len(sinks) > 0 {
		a.percentiles("e2e_", sinks.latencies(warm))
		a["delivered"] = float64(sinks.delivered()) / float64(count*len(sinks)) * 100
	}
	return a
}

// connect opens a connection, asks one question over it (a topic's partitions) and closes it, Connections at a time, as
// fast as they are answered: what is counted is connections.
func connect(s *spec) answer {
	var answered atomic.Int64
	stop := make(chan struct{})
	for range s.Connections {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := newClient(s)
				if _, err := c.TopicPartitions(s.Topic); err != nil {
					fail("connect: %v", err)
				}
				c.Close()
				answered.Add(1)
			}
		}()
	}
	time.Sleep(time.Duration(s.Warmup * 1e9))
	cpu, at, before := cpuOf(s.Pid), time.Now(), answered.Load()
	time.Sleep(time.Duration(s.Seconds * 1e9))
	count, seconds := answered.Load()-before, time.Since(at).Seconds()
	cpu = cpuOf(s.Pid) - cpu
	close(stop)
	if count == 0 {
		fail("no connection was answered in %v s", s.Seconds)
	}
	a := answer{"rate": float64(count) / seconds}
	a.spent(cpu, int(count))
	return a
}
