//! iceberg-rust: answers each line of JSON, a verb with its parameters, with a line of JSON.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use futures::TryStreamExt;
use iceberg::spec::{DataFileFormat, NestedField, PrimitiveType, Schema, Type};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use iceberg::writer::base_writer::data_file_writer::DataFileWriterBuilder;
use iceberg::writer::file_writer::ParquetWriterBuilder;
use iceberg::writer::file_writer::location_generator::{DefaultFileNameGenerator, DefaultLocationGenerator};
use iceberg::writer::file_writer::rolling_writer::RollingFileWriterBuilder;
use iceberg::writer::{IcebergWriter, IcebergWriterBuilder};
use iceberg::{Catalog, CatalogBuilder, NamespaceIdent, TableCreation, TableIdent};
use iceberg_catalog_rest::{RestCatalog, RestCatalogBuilder};
use iceberg_storage_opendal::OpenDalStorageFactory;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

type Answer = Result<Value, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server: Value = serde_json::from_str(&std::env::args().nth(1).ok_or("the first argument is missing")?)?;
    let catalog = open(&server).await?;
    let mut number = 0;
    for line in std::io::stdin().lock().lines() {
        number += 1;
        let answer = match answer(&catalog, &serde_json::from_str(&line?)?, number).await {
            Ok(result) => json!({ "result": result }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

async fn open(server: &Value) -> Result<RestCatalog, Box<dyn Error>> {
    let mut properties: HashMap<String, String> = serde_json::from_value(server["properties"].clone())?;
    properties.insert("uri".into(), text(server, "uri")?);
    properties.insert("warehouse".into(), "main".into());
    let storage = if server["s3"].is_null() {
        OpenDalStorageFactory::Fs
    } else {
        OpenDalStorageFactory::S3 { customized_credential_load: None }
    };
    let builder = RestCatalogBuilder::default().with_storage_factory(Arc::new(storage));
    Ok(builder.load("sandur", properties).await?)
}

async fn answer(catalog: &RestCatalog, asked: &Value, number: u32) -> Answer {
    match text(asked, "do")?.as_str() {
        "create_namespace" => {
            catalog.create_namespace(&NamespaceIdent::new(text(asked, "name")?), HashMap::new()).await?;
        }
        "list_namespaces" => {
            let found = catalog.list_namespaces(None).await?;
            return Ok(json!(found.into_iter().map(NamespaceIdent::inner).collect::<Vec<_>>()));
        }
        "drop_namespace" => catalog.drop_namespace(&NamespaceIdent::new(text(asked, "name")?)).await?,
        "create" => {
            let TableIdent { namespace, name } = identifier(asked, "table")?;
            let creation = TableCreation::builder().name(name).schema(schema()?).build();
            catalog.create_table(&namespace, creation).await?;
        }
        "rename" => catalog.rename_table(&identifier(asked, "table")?, &identifier(asked, "to")?).await?,
        "drop" => catalog.drop_table(&identifier(asked, "table")?).await?,
        "exists" => return Ok(json!(catalog.table_exists(&identifier(asked, "table")?).await?)),
        "append" => append(catalog, &identifier(asked, "table")?, &asked["rows"], number).await?,
        "read" => return read(&catalog.load_table(&identifier(asked, "table")?).await?).await,
        other => return Err(format!("no such verb: {other}").into()),
    }
    Ok(Value::Null)
}

async fn append(catalog: &RestCatalog, name: &TableIdent, rows: &Value, number: u32) -> Result<(), Box<dyn Error>> {
    let table = catalog.load_table(name).await?;
    let metadata = table.metadata();
    let files = RollingFileWriterBuilder::new_with_default_file_size(
        ParquetWriterBuilder::new(WriterProperties::default(), metadata.current_schema().clone()),
        table.file_io().clone(),
        DefaultLocationGenerator::new(metadata)?,
        DefaultFileNameGenerator::new(format!("rust-{number}"), None, DataFileFormat::Parquet),
    );
    let mut writer = DataFileWriterBuilder::new(files).build(None).await?;
    writer.write(batch(&table, rows)?).await?;
    let written = writer.close().await?;
    let transaction = Transaction::new(&table);
    let transaction = transaction.fast_append().add_data_files(written).apply(transaction)?;
    transaction.commit(catalog).await?;
    Ok(())
}

fn batch(table: &Table, rows: &Value) -> Result<RecordBatch, Box<dyn Error>> {
    let rows = rows.as_array().ok_or("rows are missing")?;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row[0].as_i64()))),
        Arc::new(StringArray::from_iter(rows.iter().map(|row| row[1].as_str()))),
        Arc::new(Float64Array::from_iter(rows.iter().map(|row| row[2].as_f64()))),
    ];
    let fields = iceberg::arrow::schema_to_arrow_schema(table.metadata().current_schema())?;
    Ok(RecordBatch::try_new(Arc::new(fields), columns)?)
}

async fn read(table: &Table) -> Answer {
    let scan = table.scan().select(["id", "name", "amount"]).build()?;
    let batches: Vec<RecordBatch> = scan.to_arrow().await?.try_collect().await?;
    let mut rows = Vec::new();
    for batch in batches {
        let ids = batch.column(0).as_any().downcast_ref::<Int64Array>().ok_or("id is no long")?;
        let names = batch.column(1).as_any().downcast_ref::<StringArray>().ok_or("name is no string")?;
        let amounts = batch.column(2).as_any().downcast_ref::<Float64Array>().ok_or("amount is no double")?;
        for row in 0..batch.num_rows() {
            let name = (!names.is_null(row)).then(|| names.value(row));
            let amount = (!amounts.is_null(row)).then(|| amounts.value(row));
            rows.push(json!([ids.value(row), name, amount]));
        }
    }
    Ok(json!(rows))
}

fn schema() -> iceberg::Result<Schema> {
    let fields = [(1, "id", PrimitiveType::Long), (2, "name", PrimitiveType::String), (3, "amount", PrimitiveType::Double)];
    let fields = fields.map(|(id, name, kind)| NestedField::optional(id, name, Type::Primitive(kind)).into());
    Schema::builder().with_fields(fields).build()
}

fn identifier(asked: &Value, key: &str) -> Result<TableIdent, Box<dyn Error>> {
    Ok(TableIdent::from_strs(text(asked, key)?.split('.'))?)
}

fn text(asked: &Value, key: &str) -> Result<String, Box<dyn Error>> {
    Ok(asked[key].as_str().ok_or(format!("{key} is missing"))?.to_owned())
}
