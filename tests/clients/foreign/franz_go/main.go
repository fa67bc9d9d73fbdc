// The franz-go client, asked on stdin and answering on stdout, one line of JSON each.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	operationTimeout = 60 * time.Second
	// Larger than any batch that is asked for, so that it is the broker that refuses one.
	batchBytesMax = 8 << 20
	// The code of an error that no broker sent.
	noCode = -1
)

type object = map[string]any

// The fields of every operation; bytes are base64 in JSON, and a null is a nil slice.
type request struct {
	ID                int64              `json:"id"`
	Op                string             `json:"op"`
	Topic             string             `json:"topic"`
	Partition         int32              `json:"partition"`
	Partitions        int32              `json:"partitions"`
	Total             int                `json:"total"`
	ReplicationFactor *int16             `json:"replication_factor"`
	Configs           map[string]*string `json:"configs"`
	BeforeOffset      int64              `json:"before_offset"`
	Offset            json.RawMessage    `json:"offset"`
	Timestamp         int64              `json:"timestamp"`
	Count             int                `json:"count"`
	TimeoutMs         int64              `json:"timeout_ms"`
	Records           []newRecord        `json:"records"`
	Codec             string             `json:"codec"`
	Acks              int                `json:"acks"`
	Idempotent        bool               `json:"idempotent"`
}

type newRecord struct {
	Partition *int32               `json:"partition"`
	Key       []byte               `json:"key"`
	Value     []byte               `json:"value"`
	Headers   [][2]json.RawMessage `json:"headers"`
	Timestamp *int64               `json:"timestamp"`
}

// Why the client cannot do what is asked.
type unsupported string

func (u unsupported) Error() string { return string(u) }

type driver struct {
	bootstrap string
	admin     *kadm.Client
}

var operations = map[string]func(*driver, context.Context, request) (object, error){
	"create_topic":      (*driver).createTopic,
	"describe_topic":    (*driver).describeTopic,
	"list_topics":       (*driver).listTopics,
	"describe_configs":  (*driver).describeConfigs,
	"alter_configs":     (*driver).alterConfigs,
	"create_partitions": (*driver).createPartitions,
	"delete_topic":      (*driver).deleteTopic,
	"delete_records":    (*driver).deleteRecords,
	"produce":           (*driver).produce,
	"consume":           (*driver).consume,
	"consume_from_time": (*driver).consumeFromTime,
	"list_offsets":      (*driver).listOffsets,
	"offset_for_time":   (*driver).offsetForTime,
	"describe_cluster":  (*driver).describeCluster,
}

func main() {
	if os.Args[1] == "member" {
		if err := beMember(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	bootstrap := os.Args[1]
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	driver := &driver{bootstrap: bootstrap, admin: kadm.NewClient(client)}
	replies := json.NewEncoder(os.Stdout)
	replies.Encode(object{"ready": true, "version": clientVersion()})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		replies.Encode(driver.answer(line))
	}
}

func (d *driver) answer(line []byte) object {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return object{"id": asked.ID, "error": object{"code": noCode, "name": "BadRequest", "message": err.Error()}}
	}
	operation, isKnown := operations[asked.Op]
	if !isKnown {
		return object{"id": asked.ID, "unsupported": "the driver has no operation " + asked.Op}
	}
	ctx, cancel := context.WithTimeout(context.Background(), operationTimeout)
	defer cancel()
	done, err := operation(d, ctx, asked)
	var reason unsupported
	if errors.As(err, &reason) {
		return object{"id": asked.ID, "unsupported": reason}
	}
	if err != nil {
		return object{"id": asked.ID, "error": described(err)}
	}
	return object{"id": asked.ID, "ok": done}
}

func clientVersion() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return ""
}

func described(err error) object {
	var sent *kerr.Error
	if errors.As(err, &sent) {
		return object{"code": sent.Code, "name": sent.Message, "message": err.Error()}
	}
	return object{"code": noCode, "name": fmt.Sprintf("%T", err), "message": err.Error()}
}

func (d *driver) createTopic(ctx context.Context, asked request) (object, error) {
	replicationFactor := int16(-1)
	if asked.ReplicationFactor != nil {
		replicationFactor = *asked.ReplicationFactor
	}
	_, err := d.admin.CreateTopic(ctx, asked.Partitions, replicationFactor, asked.Configs, asked.Topic)
	return object{}, err
}

func (d *driver) describeTopic(ctx context.Context, asked request) (object, error) {
	topics, err := d.admin.ListTopics(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	topic := topics[asked.Topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	leaders := []int32{}
	for _, partition := range topic.Partitions.Sorted() {
		leaders = append(leaders, partition.Leader)
	}
	return object{"partitions": len(leaders), "leaders": leaders}, nil
}

func (d *driver) listTopics(ctx context.Context, asked request) (object, error) {
	topics, err := d.admin.ListTopics(ctx)
	return object{"topics": topics.Names()}, err
}

func (d *driver) describeConfigs(ctx context.Context, asked request) (object, error) {
	described, err := d.admin.DescribeTopicConfigs(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	topic, err := described.On(asked.Topic, nil)
	if err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for _, config := range topic.Configs {
		configs[config.Key] = config.Value
	}
	return object{"configs": configs}, topic.Err
}

func (d *driver) alterConfigs(ctx context.Context, asked request) (object, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range asked.Configs {
		operation := kadm.SetConfig
		if value == nil {
			operation = kadm.DeleteConfig
		}
		changes = append(changes, kadm.AlterConfig{Op: operation, Name: name, Value: value})
	}
	altered, err := d.admin.AlterTopicConfigs(ctx, changes, asked.Topic)
	if err != nil {
		return nil, err
	}
	topic, err := altered.On(asked.Topic, nil)
	return object{}, errors.Join(err, topic.Err)
}

func (d *driver) createPartitions(ctx context.Context, asked request) (object, error) {
	created, err := d.admin.UpdatePartitions(ctx, asked.Total, asked.Topic)
	if err != nil {
		return nil, err
	}
	return object{}, created.Error()
}

func (d *driver) deleteTopic(ctx context.Context, asked request) (object, error) {
	_, err := d.admin.DeleteTopic(ctx, asked.Topic)
	return object{}, err
}

func (d *driver) deleteRecords(ctx context.Context, asked request) (object, error) {
	before := kadm.Offsets{}
	before.AddOffset(asked.Topic, asked.Partition, asked.BeforeOffset, -1)
	deleted, err := d.admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	partition, _ := deleted.Lookup(asked.Topic, asked.Partition)
	return object{"low_watermark": partition.LowWatermark}, partition.Err
}

func (d *driver) produce(ctx context.Context, asked request) (object, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.ProducerBatchMaxBytes(batchBytesMax),
		kgo.RequiredAcks(acks[asked.Acks]),
		kgo.RecordPartitioner(partitionedAsAsked(asked.Records)),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, wanted := range asked.Records {
		record, err := recordFor(asked.Topic, wanted)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	err = client.ProduceSync(ctx, records...).FirstErr()
	if err != nil && strings.Contains(err.Error(), "invalid record partitioning choice") {
		return nil, unsupported("the client itself refuses a partition that is not there")
	}
	// Deliveries come in the order of their completion, but fill in the records that were passed.
	results := []object{}
	for _, record := range records {
		offset := record.Offset
		if asked.Acks == 0 {
			offset = -1
		}
		results = append(results, object{"partition": record.Partition, "offset": offset})
	}
	return object{"results": results}, err
}

// Either every record names its partition, or the client chooses for all of them.
func partitionedAsAsked(records []newRecord) kgo.Partitioner {
	if len(records) > 0 && records[0].Partition != nil {
		return kgo.ManualPartitioner()
	}
	return kgo.StickyKeyPartitioner(nil)
}

func recordFor(topic string, wanted newRecord) (*kgo.Record, error) {
	record := &kgo.Record{Topic: topic, Key: wanted.Key, Value: wanted.Value}
	if wanted.Partition != nil {
		record.Partition = *wanted.Partition
	}
	if wanted.Timestamp != nil {
		record.Timestamp = time.UnixMilli(*wanted.Timestamp)
	}
	for _, pair := range wanted.Headers {
		var header kgo.RecordHeader
		if err := errors.Join(json.Unmarshal(pair[0], &header.Key), json.Unmarshal(pair[1], &header.Value)); err != nil {
			return nil, err
		}
		record.Headers = append(record.Headers, header)
	}
	return record, nil
}

func (d *driver) consume(ctx context.Context, asked request) (object, error) {
	start := kgo.NewOffset()
	switch string(asked.Offset) {
	case `"earliest"`:
		start = start.AtStart()
	case `"latest"`:
		start = start.AtEnd()
	default:
		var offset int64
		if err := json.Unmarshal(asked.Offset, &offset); err != nil {
			return nil, err
		}
		start = start.At(offset)
	}
	records, err := d.read(ctx, asked, start)
	return object{"records": records}, err
}

func (d *driver) consumeFromTime(ctx context.Context, asked request) (object, error) {
	offset, err := d.offsetAtTime(ctx, asked)
	if err != nil || offset < 0 {
		return object{"offset": offset, "records": []object{}}, err
	}
	records, err := d.read(ctx, asked, kgo.NewOffset().AfterMilli(asked.Timestamp))
	return object{"offset": offset, "records": records}, err
}

func (d *driver) read(ctx context.Context, asked request, start kgo.Offset) ([]object, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(d.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(asked.TimeoutMs)*time.Millisecond)
	defer cancel()
	found := []object{}
	for len(found) < asked.Count {
		fetches := client.PollRecords(ctx, asked.Count-len(found))
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			found = append(found, asJSON(record))
		}
	}
	return found, nil
}

func asJSON(record *kgo.Record) object {
	headers := [][2]any{}
	for _, header := range record.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return object{
		"partition": record.Partition,
		"offset":    record.Offset,
		"timestamp": record.Timestamp.UnixMilli(),
		"key":       record.Key,
		"value":     record.Value,
		"headers":   headers,
	}
}

func (d *driver) listOffsets(ctx context.Context, asked request) (object, error) {
	starts, err := d.admin.ListStartOffsets(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	ends, err := d.admin.ListEndOffsets(ctx, asked.Topic)
	if err != nil {
		return nil, err
	}
	earliest, err := listedAt(starts, asked)
	if err != nil {
		return nil, err
	}
	latest, err := listedAt(ends, asked)
	return object{"earliest": earliest.Offset, "latest": latest.Offset}, err
}

func (d *driver) offsetForTime(ctx context.Context, asked request) (object, error) {
	offset, err := d.offsetAtTime(ctx, asked)
	return object{"offset": offset}, err
}

// Where nothing is that young kadm answers with the end of the log, and with no timestamp.
func (d *driver) offsetAtTime(ctx context.Context, asked request) (int64, error) {
	listed, err := d.admin.ListOffsetsAfterMilli(ctx, asked.Timestamp, asked.Topic)
	if err != nil {
		return -1, err
	}
	found, err := listedAt(listed, asked)
	if found.Timestamp < 0 {
		return -1, err
	}
	return found.Offset, err
}

// kadm asks for every partition of a topic, and reports a topic that does not exist as partition -1.
func listedAt(listed kadm.ListedOffsets, asked request) (kadm.ListedOffset, error) {
	if missing, isMissing := listed.Lookup(asked.Topic, -1); isMissing {
		return missing, missing.Err
	}
	found, isThere := listed.Lookup(asked.Topic, asked.Partition)
	if !isThere {
		return found, kerr.UnknownTopicOrPartition
	}
	return found, found.Err
}

func (d *driver) describeCluster(ctx context.Context, asked request) (object, error) {
	metadata, err := d.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	nodes := []object{}
	for _, broker := range metadata.Brokers {
		nodes = append(nodes, object{"id": broker.NodeID, "host": broker.Host, "port": broker.Port})
	}
	return object{"cluster_id": metadata.Cluster, "controller_id": metadata.Controller, "nodes": nodes}, nil
}
