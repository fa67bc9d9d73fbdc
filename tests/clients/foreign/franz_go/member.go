package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const closeTimeout = 10 * time.Second

// What a member of a group is started with.
type membership struct {
	Bootstrap           string `json:"bootstrap"`
	Group               string `json:"group"`
	Topic               string `json:"topic"`
	SessionTimeoutMs    int64  `json:"session_timeout_ms"`
	HeartbeatIntervalMs int64  `json:"heartbeat_interval_ms"`
}

// Callbacks and the loop that reads tell at the same time.
var telling sync.Mutex

func tell(event object) {
	telling.Lock()
	defer telling.Unlock()
	event["at"] = time.Now().UnixMilli()
	if err := json.NewEncoder(os.Stdout).Encode(event); err != nil {
		os.Exit(1)
	}
}

// beMember reads as a member of a group, tells on stdout what happens to it, and leaves when stdin ends.
func beMember(settings string) error {
	var asked membership
	if err := json.Unmarshal([]byte(settings), &asked); err != nil {
		return err
	}
	teller := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			partitions := append([]int32{}, places[asked.Topic]...)
			tell(object{"event": event, "partitions": partitions})
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(time.Duration(asked.SessionTimeoutMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(asked.HeartbeatIntervalMs)*time.Millisecond),
		kgo.DisableAutoCommit(),
		// What was polled is committed before the group may move on.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(teller("assigned")),
		kgo.OnPartitionsRevoked(teller("revoked")),
		kgo.OnPartitionsLost(teller("lost")),
	)
	if err != nil {
		return err
	}
	leaves, leave := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	for leaves.Err() == nil {
		fetches := client.PollFetches(leaves)
		records := fetches.Records()
		nexts := map[int32]int64{}
		for _, record := range records {
			tell(object{"event": "read", "partition": record.Partition, "offset": record.Offset})
			nexts[record.Partition] = record.Offset + 1
		}
		if len(records) > 0 && client.CommitRecords(context.Background(), records...) == nil {
			tell(object{"event": "committed", "offsets": nexts})
		}
		client.AllowRebalance()
	}
	closing, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err = client.LeaveGroupContext(closing)
	client.CloseAllowingRebalance()
	return err
}
