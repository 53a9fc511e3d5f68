from fastapi import FastAPI

app = FastAPI()


@app.get("/health")
async def health():
    return {}


@app.post(
    "/generate",
)
async def generate(prompt: str):
    return prompt


def serve():
    import uvicorn

    app.add_api_route("/version", health)
    uvicorn.run(app)
