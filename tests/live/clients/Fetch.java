import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** The JDK's HTTP client by its defaults: two PUTs under a token, and a GET. Arguments: URL, token. Ends with 1 unless each is 200. */
public class Fetch {
  public static void main(String[] arguments) throws IOException, InterruptedException {
    HttpClient client = HttpClient.newHttpClient();
    URI target = URI.create(arguments[0]);
    HttpRequest put = HttpRequest.newBuilder(target).header("Fencing-Token", arguments[1])
        .PUT(HttpRequest.BodyPublishers.ofString("by " + arguments[1])).build();
    HttpRequest[] requests = {put, put, HttpRequest.newBuilder(target).build()};
    boolean done = true;
    for (HttpRequest request : requests) {
      HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
      System.out.println(response.version() + " " + response.statusCode() + " " + response.body());
      done = done && response.statusCode() == 200;
    }
    System.exit(done ? 0 : 1);
  }
}
