// iceberg-go: answers each line of JSON, a verb with its parameters, with a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud/s3" // how tables on a bucket are reached
	"github.com/apache/iceberg-go/table"
)

type connection struct {
	URI        string
	Token      string
	Properties iceberg.Properties
}

type request struct {
	Do    string
	Name  string
	Table string
	To    string
	Id    int64
	Rows  [][]any
}

var schema = iceberg.NewSchema(0,
	iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64},
	iceberg.NestedField{ID: 2, Name: "name", Type: iceberg.PrimitiveTypes.String},
	iceberg.NestedField{ID: 3, Name: "amount", Type: iceberg.PrimitiveTypes.Float64},
)

func main() {
	var server connection
	if err := json.Unmarshal([]byte(os.Args[1]), &server); err != nil {
		panic(err)
	}
	ctx := context.Background()
	catalog, err := rest.NewCatalog(ctx, "sandur", server.URI,
		rest.WithWarehouseLocation("main"), rest.WithOAuthToken(server.Token), rest.WithAdditionalProps(server.Properties))
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		result, err := answer(ctx, catalog, lines.Bytes())
		if err != nil {
			_ = answers.Encode(map[string]any{"error": err.Error()})
		} else {
			_ = answers.Encode(map[string]any{"result": result})
		}
	}
}

func answer(ctx context.Context, catalog *rest.Catalog, line []byte) (any, error) {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	identifier := strings.Split(asked.Table, ".")
	switch asked.Do {
	case "create_namespace":
		return nil, catalog.CreateNamespace(ctx, table.Identifier{asked.Name}, iceberg.Properties{"owner": "me"})
	case "list_namespaces":
		return catalog.ListNamespaces(ctx, nil)
	case "drop_namespace":
		return nil, catalog.DropNamespace(ctx, table.Identifier{asked.Name})
	case "create":
		_, err := catalog.CreateTable(ctx, identifier, schema)
		return nil, err
	case "rename":
		_, err := catalog.RenameTable(ctx, identifier, strings.Split(asked.To, "."))
		return nil, err
	case "drop":
		return nil, catalog.DropTable(ctx, identifier)
	case "exists":
		return catalog.CheckTableExists(ctx, identifier)
	}
	loaded, err := catalog.LoadTable(ctx, identifier)
	if err != nil {
		return nil, err
	}
	switch asked.Do {
	case "append":
		rows := arrowTable(asked.Rows)
		defer rows.Release()
		_, err = loaded.AppendTable(ctx, rows, 1024, nil)
		return nil, err
	case "overwrite":
		rows := arrowTable(asked.Rows)
		defer rows.Release()
		_, err = loaded.OverwriteTable(ctx, rows, 1024, nil)
		return nil, err
	case "delete":
		_, err = loaded.Delete(ctx, iceberg.EqualTo(iceberg.Reference("id"), asked.Id), nil)
		return nil, err
	case "read":
		return read(ctx, loaded)
	}
	return nil, fmt.Errorf("no such verb: %s", asked.Do)
}

func arrowTable(rows [][]any) arrow.Table {
	fields := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "amount", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, fields)
	defer builder.Release()
	for _, row := range rows {
		builder.Field(0).(*array.Int64Builder).Append(int64(row[0].(float64)))
		if row[1] == nil {
			builder.Field(1).AppendNull()
		} else {
			builder.Field(1).(*array.StringBuilder).Append(row[1].(string))
		}
		if row[2] == nil {
			builder.Field(2).AppendNull()
		} else {
			builder.Field(2).(*array.Float64Builder).Append(row[2].(float64))
		}
	}
	batch := builder.NewRecordBatch()
	defer batch.Release()
	return array.NewTableFromRecords(fields, []arrow.RecordBatch{batch})
}

func read(ctx context.Context, loaded *table.Table) ([][]any, error) {
	_, batches, err := loaded.Scan(table.WithSelectedFields("id", "name", "amount")).ToArrowRecords(ctx)
	if err != nil {
		return nil, err
	}
	found := [][]any{}
	for batch, err := range batches {
		if err != nil {
			return nil, err
		}
		for row := range int(batch.NumRows()) {
			values := make([]any, batch.NumCols())
			for place, column := range batch.Columns() {
				values[place] = column.GetOneForMarshal(row)
			}
			found = append(found, values)
		}
		batch.Release()
	}
	return found, nil
}
