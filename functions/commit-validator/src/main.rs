//! Bootstrap of the commit validator.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), Error> {
    lakewarden_aws::init_logs();
    let app = lakewarden_aws::app_from_env().await?;
    run(service_fn(|event: LambdaEvent<Value>| {
        let mut app = app.clone();
        async move {
            let arn = &event.context.invoked_function_arn;
            if let Some(account_id) = lakewarden_aws::account_from_arn(arn) {
                app.settings.account_id = account_id;
            }
            let deadline = lakewarden_aws::deadline(app.ports.clock.as_ref(), event.context.deadline);
            commit_validator::handle(&app, event.payload, deadline).await.map_err(Error::from)
        }
    }))
    .await
}
