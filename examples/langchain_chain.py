"""A LangChain chain that remembers earlier conversations: with `memory=`, and in LCEL.

Runs offline with a scripted model. With a real one: MEMGAS_EXAMPLE_MODEL=openai:gpt-4o-mini python langchain_chain.py
"""

import os
import tempfile
import warnings
from operator import itemgetter

from langchain.chat_models import init_chat_model
from langchain_classic.chains import ConversationChain
from langchain_core._api import LangChainDeprecationWarning
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig, RunnablePassthrough

from langchain_memgas import MemGASMemory, MemGASSave, create_recall_runnable
from memgas import MemGAS


def chat_model(*replies: str) -> BaseChatModel:
    """Return the model that the environment names, or one that says what it is told to."""
    name = os.environ.get("MEMGAS_EXAMPLE_MODEL")
    return init_chat_model(name) if name else FakeListChatModel(responses=list(replies))


def with_memory(memory: MemGAS) -> None:
    """Talk through a ConversationChain; LangChain calls its chains deprecated, and they run as ever."""
    warnings.simplefilter("ignore", LangChainDeprecationWarning)
    monday = ConversationChain(
        llm=chat_model("Congratulations! Greyhounds love to sleep."),
        memory=MemGASMemory(memory=memory, namespace="ana", conversation_id="monday"),
    )
    print("AI:", monday.invoke({"input": "I adopted a greyhound, her name is Juno."})["response"])

    later = MemGASMemory(memory=memory, namespace="ana", conversation_id="friday")
    friday = ConversationChain(llm=chat_model("Your greyhound is called Juno."), memory=later)
    print("\nWhat the model is told on Friday:")
    print(later.load_memory_variables({"input": "What is my greyhound called?"})["history"])
    print("\nAI:", friday.invoke({"input": "What is my greyhound called?"})["response"])


def with_lcel(memory: MemGAS) -> None:
    """Recall and save as two steps of an LCEL chain, streaming."""
    prompt = ChatPromptTemplate.from_messages([("system", "Answer briefly.\n{memories}"), ("human", "{input}")])
    answer = prompt | chat_model("She sleeps, being a greyhound.") | StrOutputParser()
    chain = (
        RunnablePassthrough.assign(memories=create_recall_runnable(memory))
        | RunnablePassthrough.assign(output=answer)
        | MemGASSave(memory)
    )
    config: RunnableConfig = {"configurable": {"user_id": "ana", "thread_id": "saturday"}}
    print("\nAI: ", end="")
    for piece in chain.stream({"input": "What does my greyhound Juno do all day?"}, config):
        print(piece.get("output", ""), end="", flush=True)
    print()
    answer_alone = chain | itemgetter("output")
    print("AI:", answer_alone.invoke({"input": "And my greyhound at night?"}, config))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MemGAS(folder) as memory:
        with_memory(memory)
        with_lcel(memory)


if __name__ == "__main__":
    main()
