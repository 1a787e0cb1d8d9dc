// gRPC client (grpc-go): TARGET. For each line `COUNT DEADLINE WAIT`, makes calls and prints outcomes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
)

// empty encodes every message as no bytes.
type empty struct{}

func (empty) Marshal(any) ([]byte, error) { return nil, nil }
func (empty) Unmarshal([]byte, any) error { return nil }
func (empty) Name() string                { return "empty" }

func main() {
	client, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	// Connects without a call.
	client.Connect()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var count, wait int
		var deadline float64
		if _, err := fmt.Sscan(lines.Text(), &count, &deadline, &wait); err != nil {
			panic(err)
		}
		outcomes, _ := json.Marshal(calls(client, count, deadline, wait == 1))
		fmt.Println(string(outcomes))
	}
}

func calls(client *grpc.ClientConn, count int, deadline float64, wait bool) map[string]int {
	var group sync.WaitGroup
	var lock sync.Mutex
	outcomes := map[string]int{}
	for range count {
		group.Go(func() {
			limit := time.Duration(deadline * float64(time.Second))
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			err := client.Invoke(ctx, "/plimsoll.test.Peer/Call", nil, nil,
				grpc.ForceCodec(empty{}), grpc.WaitForReady(wait))
			lock.Lock()
			outcomes[status.Code(err).String()]++
			lock.Unlock()
		})
	}
	group.Wait()
	return outcomes
}
