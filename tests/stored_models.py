"""Makes the content of a model file from a model in memory."""

from onehop.config import Settings
from onehop.storage.model_file import StoredModel


def stored_model(model, tokenizer, target="de"):
    return StoredModel(
        settings=Settings(model=model.settings),
        tokenizer=tokenizer.model,
        source="en",
        target=target,
        provenance={},
        tensors={name: tensor.numpy() for name, tensor in model.state_dict().items()},
    )
