// A client of the gRPC services in Go: it makes a table, commits to it, meets a conflict, and reads the events.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	v1 "sandur.test/grpc_go/v1"
)

const schema = `{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"id","type":"long","required":true}]}`

type result struct {
	Properties map[string]string `json:"properties"`
	Conflict   string            `json:"conflict"`
	Reason     string            `json:"reason"`
	Missing    string            `json:"missing"`
	Uuid       string            `json:"uuid"`
	Tasks      int               `json:"tasks"`
	Events     []string          `json:"events"`
	Hurried    string            `json:"hurried"`
}

func main() {
	address, token := os.Args[1], os.Args[2]
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}

	namespace := &v1.NamespaceName{Levels: []string{"go"}}
	name := &v1.Name{Namespace: []string{"go"}, Name: "t"}
	_, err = v1.NewNamespacesClient(connection).Create(ctx, &v1.CreateNamespaceRequest{Name: namespace})
	check(err)
	tables := v1.NewTablesClient(connection)
	body := fmt.Sprintf(`{"name":"t","schema":%s}`, schema)
	made, err := tables.Create(ctx, &v1.CreateTableRequest{Namespace: namespace, Body: []byte(body)})
	check(err)
	found := result{Uuid: decoded(made.Metadata).Uuid}

	keyed := metadata.AppendToOutgoingContext(ctx, "idempotency-key", "01890a5d-ac96-774b-bcce-b302099a8057")
	change := `{"requirements":[],"updates":[{"action":"set-properties","updates":{"from":"go"}}]}`
	for range 2 { // The second call is a replay.
		committed, err := tables.Commit(keyed, &v1.CommitTableRequest{Table: name, Body: []byte(change)})
		check(err)
		found.Properties = decoded(committed.Metadata).Properties
	}

	stale := `{"requirements":[{"type":"assert-current-schema-id","current-schema-id":7}],"updates":[]}`
	_, err = tables.Commit(ctx, &v1.CommitTableRequest{Table: name, Body: []byte(stale)})
	found.Conflict = status.Code(err).String()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			found.Reason = info.Domain + "/" + info.Reason
		}
	}
	_, err = tables.Get(ctx, &v1.GetTableRequest{Table: &v1.Name{Namespace: []string{"go"}, Name: "none"}})
	found.Missing = status.Code(err).String()
	hurried, stop := context.WithTimeout(ctx, time.Nanosecond)
	_, err = tables.Get(hurried, &v1.GetTableRequest{Table: name})
	stop()
	found.Hurried = status.Code(err).String()

	parts, err := v1.NewScansClient(connection).Plan(ctx, &v1.PlanScanRequest{Table: name})
	check(err)
	for {
		if _, err := parts.Recv(); err != nil {
			break
		}
		found.Tasks++
	}

	wanted := &v1.EventFilter{SinceMs: 1, Names: []*v1.Name{{Namespace: []string{"go"}}}, ObjectTypes: []string{"table"}}
	events, err := v1.NewEventsClient(connection).Subscribe(ctx, &v1.SubscribeRequest{Filter: wanted})
	check(err)
	for len(found.Events) < 3 {
		part, err := events.Recv()
		check(err)
		for _, event := range part.Events {
			found.Events = append(found.Events, event.Type)
		}
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

type document struct {
	Uuid       string            `json:"table-uuid"`
	Properties map[string]string `json:"properties"`
}

func decoded(metadata []byte) document {
	var found document
	check(json.Unmarshal(metadata, &found))
	return found
}

func check(err error) {
	if err != nil && status.Code(err) != codes.OK {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
