// send | receive | info | login with go-amqp. See ../README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

const window = 500

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// send turns each line of stdin into an event; many are on their way at a time.
func send(ctx context.Context, session *amqp.Session, log string) {
	sender := must(session.NewSender(ctx, log, nil))
	lines := bufio.NewScanner(os.Stdin)
	var pending []amqp.SendReceipt
	accepted := 0
	settle := func(leave int) {
		for len(pending) > leave {
			state := must(pending[0].Wait(ctx))
			if _, ok := state.(*amqp.StateAccepted); !ok {
				must(0, fmt.Errorf("outcome %v", state))
			}
			accepted++
			pending = pending[1:]
		}
	}
	for lines.Scan() {
		line := lines.Text()
		message := amqp.NewMessage([]byte(line))
		message.Annotations = amqp.Annotations{"event-streams-group-key": line[:10]}
		pending = append(pending, must(sender.SendWithReceipt(ctx, message, nil)))
		settle(window)
	}
	settle(0)
	fmt.Println(accepted)
}

// begin is the filter that starts a receiver after an offset or a time.
func begin(where string) amqp.LinkFilter {
	kind, value, _ := strings.Cut(where, ":")
	condition := map[amqp.Symbol]any{}
	switch kind {
	case "time":
		condition["event-streams-timestamp"] = time.UnixMilli(must(strconv.ParseInt(value, 10, 64)))
	case "offset":
		condition["event-streams-offset"] = amqp.Symbol(value)
	default:
		condition["event-streams-offset"] = amqp.Symbol("@earliest")
	}
	return amqp.NewLinkFilter("amqp:event-streams-delivery-annotations-filter", 0x200, condition)
}

func receive(ctx context.Context, session *amqp.Session, log, where string, count int) {
	options := &amqp.ReceiverOptions{Credit: window, Filters: []amqp.LinkFilter{begin(where)}}
	receiver := must(session.NewReceiver(ctx, log, options))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	// Settling waits for an answer unless the mode is "settled on send"; a few goroutines keep it moving.
	var settling sync.WaitGroup
	slots := make(chan struct{}, 32)
	for range count {
		message := must(receiver.Receive(ctx, nil))
		about := message.DeliveryAnnotations
		moment := about["event-streams-timestamp"].(time.Time).UnixMilli()
		fmt.Fprintf(out, "%v\t%v\t%d\t%s\n", about["event-streams-source-partition"], about["event-streams-offset"], moment, message.GetData())
		slots <- struct{}{}
		settling.Add(1)
		go func() {
			defer settling.Done()
			if err := receiver.AcceptMessage(ctx, message); err != nil {
				must(0, err)
			}
			<-slots
		}()
	}
	settling.Wait()
}

func info(ctx context.Context, session *amqp.Session, log string) {
	receiver := must(session.NewReceiver(ctx, log+"/$info", &amqp.ReceiverOptions{Credit: 1}))
	message := must(receiver.Receive(ctx, nil))
	for _, one := range message.Value.(map[string]any)["partitions"].([]any) {
		partition := one.(map[string]any)
		fmt.Printf("%v\t%v\t%v\n", partition["partition"], partition["earliest-offset"], partition["latest-offset"])
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if os.Args[1] == "login" {
		login(ctx, os.Args[2])
		return
	}
	connection := must(amqp.Dial(ctx, os.Args[2], nil))
	defer connection.Close()
	session := must(connection.NewSession(ctx, nil))
	switch log := os.Args[3]; os.Args[1] {
	case "send":
		send(ctx, session, log)
	case "receive":
		receive(ctx, session, log, os.Args[4], must(strconv.Atoi(os.Args[5])))
	case "info":
		info(ctx, session, log)
	}
}
