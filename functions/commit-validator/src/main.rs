//! Bootstrap of the Lambda function.

use lakewarden_aws::AppCell;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Error> {
    lakewarden_aws::init_logs();
    let cell = AppCell::from_env().await?;
    let cell = &cell;
    let function = move |event: LambdaEvent<Value>| async move {
        let app = cell.for_arn(&event.context.invoked_function_arn);
        let deadline = lakewarden_aws::deadline(app.ports.clock.as_ref(), event.context.deadline);
        commit_validator::handle(app, event.payload, deadline).await.map_err(Error::from)
    };
    lambda_runtime::run(service_fn(function)).await
}
