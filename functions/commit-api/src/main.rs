//! Bootstrap of the Lambda function.

use aws_lambda_events::event::apigw::ApiGatewayV2httpRequest;
use lakewarden_aws::AppCell;
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    lakewarden_aws::init_logs();
    let cell = AppCell::from_env().await?;
    let cell = &cell;
    let function = move |event: LambdaEvent<ApiGatewayV2httpRequest>| async move {
        let app = cell.for_arn(&event.context.invoked_function_arn);
        let deadline = lakewarden_aws::deadline(app.ports.clock.as_ref(), event.context.deadline);
        Ok::<_, Error>(commit_api::handle(app, event.payload, deadline).await)
    };
    lambda_runtime::run(service_fn(function)).await
}
